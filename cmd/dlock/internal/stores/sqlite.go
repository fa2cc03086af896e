//go:build !nosqlite

package stores

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
	"github.com/dlock-go/dlock/sqllock"
	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
)

var _ = register(openSQLite, "sqlite")

// openSQLite opens sqlite:///path/file.db, or for "sqlite:" the file in the user's state folder.
func openSQLite(ctx context.Context, raw string) (driver.Store, error) {
	if raw == "sqlite:" || raw == "sqlite://" {
		path, err := stateFile()
		if err != nil {
			return nil, err
		}
		raw = sqlurl.FileURL(path)
		if err := prepareStateFile(path); err != nil {
			return nil, fmt.Errorf("%s: %w", raw, misconfigured(err))
		}
	}
	store, err := sqllock.Open(ctx, raw, nil)
	if u, bad := sqlurl.Parse(raw); err != nil && bad == nil {
		return nil, explain(u.Path, err)
	}
	return store, err
}

// stateFile returns the default store, by the XDG Base Directory Specification.
func stateFile() (string, error) {
	variable, state := "XDG_STATE_HOME", os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("%w: there is no home folder to keep locks in (%w): use --store", sqlurl.ErrURL, err)
		}
		variable, state = "HOME", filepath.Join(home, ".local", "state")
	}
	if !filepath.IsAbs(state) {
		return "", fmt.Errorf("%w: $%s is %q, which is not an absolute path: locks would be in another file for every current folder",
			sqlurl.ErrURL, variable, os.Getenv(variable))
	}
	return filepath.Join(state, "dlock", "dlock.db"), nil
}

// prepareStateFile creates the default store for this user only. It must not be called after
// SQLite has opened the file: closing it would drop SQLite's locks on it.
func prepareStateFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// misconfigured is the error of a file that cannot be a store.
func misconfigured(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", driver.ErrDenied, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrMisconfigured, err)
}

// explain returns why SQLite could not open a file, which SQLite itself often does not say.
func explain(path string, err error) error {
	folder := filepath.Dir(path)
	info, missing := os.Stat(path)
	var file *os.File
	var cause error
	switch _, noFolder := os.Stat(folder); {
	case errors.Is(noFolder, fs.ErrNotExist):
		cause = errors.New("the folder " + folder + " does not exist")
	case errors.Is(missing, fs.ErrNotExist):
		if file, cause = os.CreateTemp(folder, ".dlock-*"); cause == nil {
			_ = os.Remove(file.Name())
		}
	case missing != nil:
		cause = missing
	case info.IsDir():
		cause = errors.New(path + " is a folder, not a database file")
	default:
		file, cause = os.Open(path)
	}
	if cause != nil {
		return fmt.Errorf("%s: %w", sqlurl.FileURL(path), misconfigured(cause))
	}
	_ = file.Close()
	return err
}
