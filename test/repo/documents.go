package repo

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"
)

// readAll reads the files with this ending, by their path.
func readAll(files fs.FS, ending string) (map[string]string, error) {
	found := make(map[string]string)
	err := fs.WalkDir(files, ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && at != "." && isIgnored(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(at, ending):
			return nil
		}
		text, err := fs.ReadFile(files, at)
		found[at] = string(text)
		return err
	})
	return found, err
}

var (
	fenced   = regexp.MustCompile("(?ms)^```(.*?)$(.*?)^```$")
	indented = regexp.MustCompile(`(?m)^(    |\t).*$`)
	inline   = regexp.MustCompile("`[^`\n]*`")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.+)$`)
)

// deadLinks returns the links of a document that have no target. It does not
// follow links to other sites.
func deadLinks(root, path, text string, docs map[string]string) (dead []string) {
	for _, code := range []*regexp.Regexp{fenced, indented, inline} {
		text = code.ReplaceAllString(text, "")
	}
	for _, match := range link.FindAllStringSubmatch(text, -1) {
		file, anchor, _ := strings.Cut(match[1], "#")
		if strings.Contains(file, ":") {
			continue
		}
		target := path
		if file != "" {
			target = filepath.ToSlash(filepath.Join(filepath.Dir(path), file))
		}
		if _, err := os.Stat(filepath.Join(root, target)); err != nil {
			dead = append(dead, fmt.Sprintf("%s: there is no %s", path, target))
			continue
		}
		if anchor != "" && !anchors(docs[target])[anchor] {
			dead = append(dead, fmt.Sprintf("%s: %s has no heading #%s", path, target, anchor))
		}
	}
	return dead
}

// anchors returns the anchors that GitHub derives from the headings.
func anchors(text string) map[string]bool {
	found := make(map[string]bool)
	for _, match := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		found[strings.Map(func(r rune) rune {
			switch {
			case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
				return unicode.ToLower(r)
			case r == ' ':
				return '-'
			}
			return -1
		}, strings.TrimSpace(match[1]))] = true
	}
	return found
}

// omission is the line of a snippet that marks omitted lines.
const omission = "..."

// invented returns the snippets of Go in a document that are in no file, and
// therefore not compiled. It skips snippets that are marked as a sketch.
func invented(text string, sources [][]string) (snippets []string) {
	for _, match := range fenced.FindAllStringSubmatch(text, -1) {
		if match[1] != "go" {
			continue
		}
		found := false
		for _, source := range sources {
			found = found || contains(source, match[2])
		}
		if !found {
			snippets = append(snippets, strings.TrimSpace(match[2]))
		}
	}
	return snippets
}

// contains reports whether the parts of a snippet, between omissions, follow each
// other in a file.
func contains(source []string, snippet string) bool {
	var part []string
	at := 0
	advance := func() bool {
		for start := at; start+len(part) <= len(source); start++ {
			if equal(source[start:start+len(part)], part) {
				at, part = start+len(part), nil
				return true
			}
		}
		return false
	}
	for _, line := range codeLines(snippet) {
		if line != omission {
			part = append(part, line)
		} else if !advance() {
			return false
		}
	}
	return advance()
}

func equal(a, b []string) bool {
	for i := range b {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// codeLines returns the lines without comments, indentation and empty lines.
func codeLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(" "+strings.Join(strings.Fields(line), " "), " // ")
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}
