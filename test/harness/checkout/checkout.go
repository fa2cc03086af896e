// Package checkout finds the repository that a test belongs to.
package checkout

import (
	"errors"
	"os"
	"path/filepath"
)

// Folder returns the folder below the root of the repository that contains the current folder.
// The paths in the program do not tell where that is: -trimpath removes them.
func Folder(below string) (string, error) {
	at, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(at, "cmd", "dlock", "go.mod")); missing == nil {
			return filepath.Join(at, below), nil
		}
		parent := filepath.Dir(at)
		if parent == at {
			return "", errors.New("the current folder is not in the repository of dlock")
		}
		at = parent
	}
	return "", err
}
