package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/cobra"
)

// releasedCommit is the commit of the tag of a release, which writes it here: go install of a
// version has no other way to know it. Empty: not a release.
const releasedCommit = ""

type versionJSON struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // empty if unknown
	Modified bool   `json:"modified"` // built from a tree with uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readVersion() versionJSON {
	v := versionJSON{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = cmp.Or(info.Main.Version, v.Version)
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	v.Commit = cmp.Or(v.Commit, releasedCommit)
	return v
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  dlock version --json | jq -r .commit",
		Args:    arguments(0, 0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			v := readVersion()
			if asJSON {
				return terminal.PrintJSON(a.stdout, v)
			}
			commit := cmp.Or(v.Commit, "unknown")
			if v.Modified {
				commit += " (modified)"
			}
			return terminal.Print(a.stdout, fmt.Sprintf("dlock %s\ncommit %s\n%s %s\n", v.Version, commit, v.Go, v.Platform))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}
