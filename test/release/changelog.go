package main

import (
	"fmt"
	"strings"
)

const unreleased = "## [Unreleased]\n"

// moveUnreleased makes a section for a version of what is not released yet.
func moveUnreleased(changelog, version, date string) (string, error) {
	heading := "## [" + strings.TrimPrefix(version, "v") + "]"
	before, after, found := strings.Cut(changelog, unreleased)
	changes, _, _ := strings.Cut(after, "\n## ")
	switch {
	case !found:
		return "", fmt.Errorf("CHANGELOG.md has no heading %q", strings.TrimSpace(unreleased))
	case strings.Contains(changelog, heading):
		return "", fmt.Errorf("CHANGELOG.md already has the heading %q", heading)
	case strings.TrimSpace(changes) == "":
		return "", fmt.Errorf("CHANGELOG.md says nothing below %q", strings.TrimSpace(unreleased))
	}
	return before + unreleased + "\n" + heading + " - " + date + "\n" + after, nil
}
