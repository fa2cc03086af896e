package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

var pages = flag.String("pages", "", "`FOLDER` to write the manual pages and the completions to")

// TestPages writes the manual pages and the completions of shells, and checks that every command
// has a page.
func TestPages(t *testing.T) {
	folder := *pages
	if folder == "" {
		folder = t.TempDir()
	}
	root := new(app).rootCommand()
	root.DisableAutoGenTag = true
	keepLayout(root)
	man := filepath.Join(folder, "man")
	if err := os.MkdirAll(man, 0o755); err != nil {
		t.Fatal(err)
	}
	header := &doc.GenManHeader{Section: "1", Source: "dlock " + root.Version, Manual: "dlock"}
	if err := doc.GenManTree(root, header, man); err != nil { // its date is $SOURCE_DATE_EPOCH
		t.Fatal(err)
	}
	for _, command := range append(root.Commands(), root) {
		if command.Hidden || command.IsAdditionalHelpTopicCommand() || command.Name() == "help" {
			continue
		}
		name := strings.ReplaceAll(command.CommandPath(), " ", "-") + ".1"
		page, err := os.ReadFile(filepath.Join(man, name))
		if err != nil || !bytes.Contains(page, []byte(command.Short)) {
			t.Errorf("%s: %v; want a page that says %q", name, err, command.Short)
		}
	}

	shells := filepath.Join(folder, "completions")
	if err := os.MkdirAll(shells, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(*cobra.Command, *bytes.Buffer) error{
		"dlock.bash": func(c *cobra.Command, b *bytes.Buffer) error { return c.GenBashCompletionV2(b, true) },
		"_dlock":     func(c *cobra.Command, b *bytes.Buffer) error { return c.GenZshCompletion(b) },
		"dlock.fish": func(c *cobra.Command, b *bytes.Buffer) error { return c.GenFishCompletion(b, true) },
		"dlock.ps1":  func(c *cobra.Command, b *bytes.Buffer) error { return c.GenPowerShellCompletionWithDesc(b) },
	} {
		var script bytes.Buffer
		if err := write(root, &script); err != nil || !strings.Contains(script.String(), "dlock") {
			t.Errorf("%s: %v; want a script for dlock, not %q", name, err, script.String())
		}
		if err := os.WriteFile(filepath.Join(shells, name), script.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// keepLayout keeps the lines of the help in the pages, which would join them.
func keepLayout(command *cobra.Command) {
	if command.Long != "" {
		command.Long = "    " + strings.ReplaceAll(command.Long, "\n", "\n    ")
	}
	for _, child := range command.Commands() {
		keepLayout(child)
	}
}
