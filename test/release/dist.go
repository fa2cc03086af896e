package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	commandPackage = "github.com/dlock-go/dlock/cmd/dlock"
	nfpmPackage    = "github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.45.2"
)

// platforms are those that have archives.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// Everything that has an influence on the program: the same version of Go makes the same bytes of it.
// Without the pages of gRPC about itself the linker removes what is not used.
var (
	staticEnv   = []string{"CGO_ENABLED=0"}
	staticFlags = []string{"-tags=grpcnotrace", "-ldflags=-s -w"}
)

// writeDist builds the files that people download from the tags of a version: an archive for each
// platform, packages of Debian and Red Hat, a list of what is in each program, and checksums.
func writeDist(root, version, folder string, platforms []string, log io.Writer) error {
	temporary, err := os.MkdirTemp("", "dlock-dist-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	at := func(parts ...string) string { return filepath.Join(append([]string{temporary}, parts...)...) }
	if err := writeProxy(root, at("proxy"), version); err != nil {
		return err
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	tag := commandFolder + "/" + version
	seconds, err := git(root, "log", "-1", "--format=%ct", tag)
	if err != nil {
		return err
	}
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return err
	}
	if _, err := git(root, "worktree", "add", "--quiet", "--detach", at("source"), tag); err != nil {
		return err
	}
	defer func() { _, _ = git(root, "worktree", "remove", "--force", at("source")) }() // a temporary folder
	d := &dist{source: at("source"), version: version, folder: folder, date: time.Unix(unix, 0).UTC(), log: log}
	builds := [2]*installer{}
	for i, cache := range []string{os.Getenv("GOCACHE"), at("cache")} { // the second has nothing to reuse
		env := staticEnv
		if cache != "" {
			env = append(slices.Clone(env), "GOCACHE="+cache)
		}
		builds[i] = &installer{proxy: at("proxy"), folder: at(fmt.Sprint("build", i)), env: env, flags: staticFlags}
	}
	if err := d.writePages(at("pages"), builds[0]); err != nil {
		return err
	}
	for _, platform := range platforms {
		goos, goarch, _ := strings.Cut(platform, "/")
		program, err := d.buildTwice(builds, goos, goarch)
		if err != nil {
			return err
		}
		if err := d.pack(program, at("pages"), goos, goarch); err != nil {
			return err
		}
	}
	return d.writeChecksums()
}

// dist is what is made for one version.
type dist struct {
	source  string // a folder with the tag
	version string
	folder  string    // of the result
	date    time.Time // of all files in archives
	log     io.Writer
}

// name returns the name of a file for a platform, without its ending.
func (d *dist) name(goos, goarch string) string {
	return strings.Join([]string{"dlock", d.version[1:], goos, goarch}, "_")
}

// buildTwice builds the program in two places, and fails if the bytes differ.
func (d *dist) buildTwice(builds [2]*installer, goos, goarch string) (string, error) {
	var sums [2][sha256.Size]byte
	var program string
	for i, build := range slices.Backward(builds[:]) {
		started := time.Now()
		var err error
		if program, err = build.install(commandPackage, d.version, goos, goarch); err != nil {
			return "", err
		}
		text, err := os.ReadFile(program)
		if err != nil {
			return "", err
		}
		sums[i] = sha256.Sum256(text)
		fmt.Fprintf(d.log, "%s/%s: %.1f MB, sha256 %x, built in %v\n", goos, goarch, float64(len(text))/1e6, sums[i],
			time.Since(started).Round(time.Second))
	}
	if sums[0] != sums[1] {
		return "", fmt.Errorf("%s/%s: two builds differ", goos, goarch)
	}
	return program, nil
}

// writePages writes the manual pages and the completions into a folder.
func (d *dist) writePages(pages string, build *installer) error {
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return err
	}
	with := *build
	with.env = append(slices.Clone(build.env), "SOURCE_DATE_EPOCH="+strconv.FormatInt(d.date.Unix(), 10))
	_, err := with.run(filepath.Join(d.source, commandFolder), "test", "-count=1", "-run", "^TestPages$", ".", "-pages", pages)
	return err
}

// pack puts a program into an archive and, for Linux, into packages.
func (d *dist) pack(program, pages, goos, goarch string) error {
	name := d.name(goos, goarch)
	bom, err := describe(program)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.folder, name+".sbom.json"), bom, 0o644); err != nil {
		return err
	}
	files := []packed{{filepath.Base(program), program, 0o755}}
	for _, document := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		files = append(files, packed{document, filepath.Join(d.source, document), 0o644})
	}
	found, err := filepath.Glob(filepath.Join(pages, "*", "*"))
	if err != nil {
		return err
	}
	for _, page := range found {
		inside, err := filepath.Rel(pages, page)
		if err != nil {
			return err
		}
		files = append(files, packed{filepath.ToSlash(inside), page, 0o644})
	}
	if goos == "windows" {
		return writeZipArchive(filepath.Join(d.folder, name+".zip"), name, files, d.date)
	}
	if err := writeTar(filepath.Join(d.folder, name+".tar.gz"), name, files, d.date); err != nil {
		return err
	}
	if goos != "linux" {
		return nil
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	image := filepath.Join(d.folder, "docker", goarch) // the context of packaging/Dockerfile
	if err := os.MkdirAll(image, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(image, "dlock"), text, 0o755); err != nil {
		return err
	}
	return d.writePackages(program, pages, goarch)
}

// writePackages makes packages for Debian and Red Hat by nfpm.
func (d *dist) writePackages(program, pages, goarch string) error {
	template, err := os.ReadFile(filepath.Join(d.source, "packaging", "nfpm.yaml"))
	if err != nil {
		return err
	}
	config := filepath.Join(filepath.Dir(pages), "nfpm.yaml")
	text := strings.NewReplacer("@ARCH@", goarch, "@VERSION@", d.version, "@DATE@", d.date.Format(time.RFC3339),
		"@PROGRAM@", program, "@PAGES@", pages, "@ROOT@", d.source).Replace(string(template))
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return err
	}
	for _, packager := range []string{"deb", "rpm"} {
		cmd := exec.Command("go", "run", nfpmPackage, "package", "--config", config, "--packager", packager, "--target", d.folder)
		cmd.Dir = filepath.Dir(pages)
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod", "SOURCE_DATE_EPOCH="+strconv.FormatInt(d.date.Unix(), 10))
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("nfpm %s: %w\n%s", packager, err, output)
		}
	}
	return nil
}

// writeChecksums writes the SHA-256 of all files in the form of sha256sum.
func (d *dist) writeChecksums() error {
	name := "dlock_" + d.version[1:] + "_checksums.txt"
	entries, err := os.ReadDir(d.folder)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	for _, entry := range entries {
		if entry.IsDir() || entry.Name() == name {
			continue
		}
		text, err := os.ReadFile(filepath.Join(d.folder, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&lines, "%x  %s\n", sha256.Sum256(text), entry.Name())
	}
	fmt.Fprintf(d.log, "%s\n%s", d.folder, lines.String())
	return os.WriteFile(filepath.Join(d.folder, name), lines.Bytes(), 0o644)
}
