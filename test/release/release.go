package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// The files that a release changes besides go.mod, go.sum and CHANGELOG.md.
const (
	guardFile = "lockstep.go" // in the root's internal/lockstep, and in every module that imports it
	guardName = "OneVersionOfAllModules"

	commandFolder = "cmd/dlock"
	commitFile    = commandFolder + "/version.go"
	noCommit      = `const releasedCommit = ""`
)

// releaser makes a release in a clone of the repository.
type releaser struct {
	root    string
	version string
	check   string // a shell command that must succeed before anything is changed
	log     io.Writer

	modules []goModule
	source  string // the commit that is released
}

// prepare checks what can be checked without a change.
func (r *releaser) prepare() error {
	if semver.Canonical(r.version) != r.version || semver.Build(r.version) != "" {
		return fmt.Errorf("version %q is not of the form v1.2.3 or v1.2.3-rc.1", r.version)
	}
	if major := semver.Major(r.version); major != "v0" && major != "v1" {
		return fmt.Errorf("version %s: the paths of the modules of %s have to end in /%s", r.version, major, major)
	}
	var err error
	if r.modules, err = readModules(r.root); err != nil {
		return err
	}
	if r.source, err = r.git("rev-parse", "HEAD"); err != nil {
		return err
	}
	changes, err := r.git("status", "--porcelain")
	if err == nil && changes != "" {
		err = fmt.Errorf("the tree is not clean:\n%s", changes)
	}
	if err != nil {
		return err
	}
	for _, m := range r.modules {
		if _, err := r.git("rev-parse", "--verify", "--quiet", "refs/tags/"+m.tag(r.version)); err == nil {
			return fmt.Errorf("there is a tag %s", m.tag(r.version))
		}
	}
	_, err = r.changelog()
	return err
}

// plan says what release would do.
func (r *releaser) plan() {
	r.say("release of %s as %s, which was not done:", short(r.source), r.version)
	r.say("  run %s, which must succeed", r.check)
	r.say("  commit %s: CHANGELOG.md gets the section %s; requirements instead of replacements:", r.version, r.version[1:])
	for _, m := range r.modules {
		for _, needed := range m.needs {
			r.say("    %s/go.mod requires %s %s", m.folder, needed, r.version)
		}
	}
	for _, m := range r.modules {
		if m.folder != commandFolder {
			r.say("  tag it as %s", m.tag(r.version))
		}
	}
	r.say("  commit the hash of that commit into %s, and tag it as %s/%s", commitFile, commandFolder, r.version)
	r.say("  commit the replacements again, for development")
	r.say("nothing is pushed. To do it: make release VERSION=%s DO=1", r.version)
}

// release makes the commits and the tags. If it fails, the clone is as before.
func (r *releaser) release() (err error) {
	check := exec.Command("bash", "-c", r.check)
	check.Dir, check.Stdout, check.Stderr = r.root, r.log, r.log
	if err := check.Run(); err != nil {
		return fmt.Errorf("the check %q failed: %w", r.check, err)
	}
	var tags []string
	defer func() {
		if err == nil {
			return
		}
		_, reset := r.git("reset", "--quiet", "--hard", r.source)
		err = errors.Join(err, reset)
		for _, tag := range tags {
			_, _ = r.git("tag", "--delete", tag) // those that were made
		}
	}()
	if err := r.edit(); err != nil {
		return err
	}
	if err := r.commit("release: " + r.version); err != nil {
		return err
	}
	released, err := r.git("rev-parse", "HEAD")
	if err != nil {
		return err
	}
	tag := func(m goModule) error {
		tags = append(tags, m.tag(r.version))
		_, err := r.git("tag", "--annotate", "--message", m.path+" "+r.version, m.tag(r.version))
		return err
	}
	for _, m := range r.modules {
		if m.folder != commandFolder {
			err = errors.Join(err, tag(m))
		}
	}
	if err != nil {
		return err
	}
	if err := r.replace(commitFile, noCommit, `const releasedCommit = "`+released+`"`); err != nil {
		return err
	}
	if err := r.commit("cmd/dlock: know the commit of " + r.version); err != nil {
		return err
	}
	for _, m := range r.modules {
		if m.folder == commandFolder {
			err = errors.Join(err, tag(m))
		}
	}
	if err != nil {
		return err
	}
	if _, err := r.git("checkout", "--quiet", r.source, "--", ".", ":!CHANGELOG.md"); err != nil {
		return err
	}
	if err := r.removeNew(); err != nil {
		return err
	}
	if err := r.commit("go.mod: back to replacements after " + r.version); err != nil {
		return err
	}
	r.say("%s is the commit of %s", released, r.version)
	r.say("to publish it: git push origin HEAD %s", strings.Join(tags, " "))
	return nil
}

// edit changes the tree into that of the version.
func (r *releaser) edit() error {
	changelog, err := r.changelog()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.root, "CHANGELOG.md"), []byte(changelog), 0o644); err != nil {
		return err
	}
	if err := r.renameGuards(); err != nil {
		return err
	}
	for _, m := range r.modules {
		if err := requireVersion(r.root, m, r.version); err != nil {
			return err
		}
	}
	// The sum of a module depends on its go.sum, and so on the sums of those that it requires.
	known := map[string][]string{}
	for _, m := range r.modules {
		var lines []string
		for _, needed := range m.needs {
			lines = append(lines, known[needed]...)
		}
		if len(lines) > 0 {
			if err := addSums(r.root, m, lines); err != nil {
				return err
			}
		}
		if _, err := r.git("add", "--all"); err != nil {
			return err
		}
		tree, err := r.git("write-tree")
		if err != nil {
			return err
		}
		if known[m.path], err = sums(r.root, tree, m, r.version); err != nil {
			return err
		}
	}
	return nil
}

// renameGuards puts the version into the name that all modules refer to.
func (r *releaser) renameGuards() error {
	guarded := 0
	err := filepath.WalkDir(r.root, func(at string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == ".git" {
			return filepath.SkipDir
		}
		if err != nil || entry.IsDir() || entry.Name() != guardFile {
			return err
		}
		guarded++
		name, err := filepath.Rel(r.root, at)
		if err != nil {
			return err
		}
		return r.replace(name, guardName+"Devel", guardName+identifier(r.version))
	})
	if err != nil {
		return err
	}
	if guarded < 2 {
		return fmt.Errorf("there are %d files %s; want one in internal/lockstep and one in each module", guarded, guardFile)
	}
	return nil
}

// removeNew removes the files that the release has and its source has not, such as a go.sum.
func (r *releaser) removeNew() error {
	added, err := r.git("diff", "--name-only", "--diff-filter=A", r.source, "--", ".", ":!CHANGELOG.md")
	if err != nil || added == "" {
		return err
	}
	_, err = r.git(slices.Concat([]string{"rm", "--quiet", "--force", "--"}, strings.Split(added, "\n"))...)
	return err
}

func (r *releaser) changelog() (string, error) {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	return moveUnreleased(string(text), r.version, time.Now().UTC().Format(time.DateOnly))
}

// identifier returns a version as a part of a Go name.
func identifier(version string) string {
	return strings.NewReplacer("v", "V", ".", "Dot", "-", "Dash").Replace(version)
}

// replace replaces a text in a file, which has to contain it.
func (r *releaser) replace(name, before, after string) error {
	name = filepath.Join(r.root, name)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), before) {
		return fmt.Errorf("%s does not contain %q", name, before)
	}
	return os.WriteFile(name, []byte(strings.ReplaceAll(string(text), before, after)), 0o644)
}

func (r *releaser) commit(message string) error {
	_, err := r.git("commit", "--quiet", "--all", "--message", message)
	return err
}

// git runs git in the clone and returns its output without the final line break.
func (r *releaser) git(args ...string) (string, error) { return git(r.root, args...) }

func git(folder string, args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = folder
	var complaints strings.Builder
	cmd.Stderr = &complaints
	output, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, complaints.String())
	}
	return strings.TrimSuffix(string(output), "\n"), err
}

func (r *releaser) say(format string, values ...any) { fmt.Fprintf(r.log, format+"\n", values...) }

func short(commit string) string { return commit[:min(12, len(commit))] }
