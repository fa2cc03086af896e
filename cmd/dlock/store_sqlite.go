package main

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

// openSQLite opens sqlite:///path/file.db. "sqlite:" alone is the file in the
// user's state folder.
func openSQLite(ctx context.Context, from storeURL) (*openStore, error) {
	path, err := sqlitePath(from)
	if err != nil {
		return nil, err
	}
	if isStateFile(from) {
		err = prepareStateFile(path)
	} else {
		err = checkFolder(path)
	}
	if err != nil {
		return nil, cannotUse("sqlite://"+path, misconfigured(err))
	}
	display := sqlurl.FileURL(path)
	store, err := sqllock.Open(ctx, display, nil)
	if err != nil {
		if _, missing := os.Stat(path); errors.Is(missing, fs.ErrNotExist) {
			err = cannotCreate(path, err)
		}
		return nil, cannotUse("sqlite://"+path, err)
	}
	return &openStore{Store: store, identity: "sqlite:" + realPath(path), display: display}, nil
}

// isStateFile reports whether a URL names no file.
func isStateFile(from storeURL) bool {
	return (from.rest == "" || from.rest == "//") && from.query == ""
}

// sqlitePath returns the absolute path that the URL means.
func sqlitePath(from storeURL) (string, error) {
	if isStateFile(from) {
		return stateFile()
	}
	u, err := sqlurl.Parse(from.whole())
	if err != nil {
		return "", usagef("%w", err)
	}
	return u.Path, nil
}

// stateFile is the default store, by the XDG Base Directory Specification.
func stateFile() (string, error) {
	// A relative folder would be another one, with other locks, for every current folder.
	const relative = "$%s is %q, which is not an absolute path: locks would be in another file for every current folder"
	if state := os.Getenv("XDG_STATE_HOME"); state != "" {
		if !filepath.IsAbs(state) {
			return "", usagef(relative, "XDG_STATE_HOME", state)
		}
		return filepath.Join(state, "dlock", "dlock.db"), nil
	}
	home, err := os.UserHomeDir()
	switch {
	case err != nil:
		return "", failf(exitUnavailable, "there is no home folder to keep locks in (%w): use --store", err)
	case !filepath.IsAbs(home):
		return "", usagef(relative, "HOME", home)
	}
	return filepath.Join(home, ".local", "state", "dlock", "dlock.db"), nil
}

// prepareStateFile makes the default store, for this user only. SQLite gives
// its companion files the mode of the database. It must come before SQLite opens
// the file: closing it would drop the locks that this process has on it.
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

// misconfigured is the error of a file that cannot be a store. Where a right is missing
// it says that instead.
func misconfigured(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: %w", driver.ErrDenied, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrMisconfigured, err)
}

// cannotCreate says why SQLite could not create a file, which SQLite does not.
func cannotCreate(path string, err error) error {
	file, why := os.CreateTemp(filepath.Dir(path), ".dlock-*")
	if why != nil {
		return misconfigured(why)
	}
	_ = file.Close()
	_ = os.Remove(file.Name()) // just created
	return err
}

// checkFolder finds what SQLite would only call "unable to open database file".
func checkFolder(path string) error {
	folder := filepath.Dir(path)
	switch info, err := os.Stat(folder); {
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("the folder " + folder + " does not exist")
	case err != nil:
		return err
	case !info.IsDir():
		return errors.New(folder + " is not a folder")
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil // SQLite creates it
	case err != nil:
		return err
	case info.IsDir():
		return errors.New(path + " is a folder, not a database file")
	}
	file, err := os.Open(path) // one that is read-only can be listed
	if err != nil {
		return err
	}
	return file.Close()
}

// realPath resolves symbolic links, as far as the path exists.
func realPath(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(folder, filepath.Base(path))
	}
	return path
}
