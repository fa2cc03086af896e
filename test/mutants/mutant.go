package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is a small change of the code that breaks a rule, and the test that must
// fail.
type mutant struct {
	rule string // the broken rule, in words
	file string // from the root of the project
	old  string // occurs once in the file
	new  string // its replacement
	test string // the folder of the package and the argument of -run: "test/stores/redis TestPause"
}

var table []mutant

// add appends to the table. The files table_*.go call it.
func add(m mutant) { table = append(table, m) }

func (m *mutant) String() string { return fmt.Sprintf("%s (%s)", m.rule, m.file) }

// target returns the folder of the test's package and its pattern.
func (m *mutant) target() (folder, pattern string) {
	folder, pattern, _ = strings.Cut(m.test, " ")
	return folder, pattern
}

// applied returns the content of the mutant's file without and with the change.
func (m *mutant) applied(root string) (before, after string, err error) {
	content, err := os.ReadFile(filepath.Join(root, m.file))
	if err != nil {
		return "", "", err
	}
	before = string(content)
	if n := strings.Count(before, m.old); n != 1 {
		return "", "", fmt.Errorf("%s contains the old text %d times; want once: %s", m.file, n, m.old)
	}
	after = strings.Replace(before, m.old, m.new, 1)
	if after == before {
		return "", "", fmt.Errorf("the change of %s changes nothing: %s", m.file, m.old)
	}
	return before, after, nil
}

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// tests returns the test functions that the mutant's pattern selects.
func (m *mutant) tests(root string) ([]string, error) {
	folder, pattern := m.target()
	selects, err := regexp.Compile(strings.Split(pattern, "/")[0])
	if err != nil {
		return nil, fmt.Errorf("%q names no test: %w", m.test, err)
	}
	if pattern == "" {
		return nil, fmt.Errorf("%q names no test", m.test)
	}
	files, err := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for _, match := range testFunction.FindAllStringSubmatch(string(content), -1) {
			if selects.MatchString(match[1]) {
				found = append(found, match[1])
			}
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("%q selects no test", m.test)
	}
	return found, nil
}
