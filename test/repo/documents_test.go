package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinksLeadSomewhere checks the links in every document, with their headings.
func TestLinksLeadSomewhere(t *testing.T) {
	docs, err := readAll(os.DirFS(root), ".md")
	if err != nil {
		t.Fatal(err)
	}
	if docs["README.md"] == "" || docs["docs/guarantees.md"] == "" {
		t.Fatal("README.md and docs/guarantees.md were not found: wrong folder")
	}
	for path, text := range docs {
		for _, problem := range deadLinks(root, path, text, docs) {
			t.Error(problem)
		}
	}
	const broken = "[a](gone.md) [b](#nothing) [c](../README.md#nothing) `[d](code.md)`\n\n    [e](code.md)\n"
	if found := deadLinks(root, "docs/design.md", broken, docs); len(found) != 3 {
		t.Errorf("in a document with three dead links it found %q", found)
	}
	const sound = "# Über `x`, twice\n[a](#über-x-twice) [b](../README.md) [c](https://go.dev/#x) [d](.)"
	if found := deadLinks(root, "docs/design.md", sound, map[string]string{"docs/design.md": sound}); found != nil {
		t.Errorf("in a document without dead links it found %q", found)
	}
}

// TestSnippetsAreCode checks that the Go code in a document is in a file that is
// compiled.
func TestSnippetsAreCode(t *testing.T) {
	docs, err := readAll(os.DirFS(root), ".md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := readAll(os.DirFS(root), ".go")
	if err != nil {
		t.Fatal(err)
	}
	var sources [][]string
	for _, text := range files {
		sources = append(sources, codeLines(text))
	}
	for path, text := range docs {
		for _, snippet := range invented(text, sources) {
			t.Errorf("%s: no file has this:\n%s", path, snippet)
		}
	}
	const document = "```go\nfunc advance() {\n}\n```\n```go sketch\nany\n```\n```sh\nany\n```\n" +
		"```go\nconst omission = \"...\"\n...\nfunc equal(a, b []string) bool {\n```\n```go\nfunc equal(a, b []string) bool {\n...\nconst omission = \"...\"\n```\n"
	if found := invented(document, sources); len(found) != 2 {
		t.Errorf("of a document with two snippets that are nowhere it found %q", found)
	}
}

// TestVersionsAreThoseTested checks that docs/interop.md names every version that
// the tests with other programs use.
func TestVersionsAreThoseTested(t *testing.T) {
	docs, err := readAll(os.DirFS(root), ".md")
	if err != nil {
		t.Fatal(err)
	}
	for file, version := range map[string]*regexp.Regexp{
		"test/interop/redisson/run":             regexp.MustCompile(`versions=\((\S+) (\S+)\)`),
		"test/interop/curator/run":              regexp.MustCompile(`versions=\((\S+) (\S+)\)`),
		"test/interop/jetcd/pom.xml":            regexp.MustCompile(`<jetcd.version>(\S+)</`),
		"test/interop/redispy/requirements.txt": regexp.MustCompile(`redis==(\S+)`),
		"test/go.mod": regexp.MustCompile(`(?s)bsm/redislock v(\S+).*redsync/v4 v(\S+).*` +
			`go-zookeeper/zk v(\S+).*etcd/client/v3 v(\S+)`),
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		found := version.FindStringSubmatch(string(text))
		if found == nil {
			t.Errorf("%s names no version: the pattern of this test is wrong", file)
			continue
		}
		for _, version := range found[1:] {
			if !strings.Contains(docs["docs/interop.md"], version) {
				t.Errorf("%s tests with %s, which docs/interop.md does not name", file, version)
			}
		}
	}
}
