package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	_ "modernc.org/sqlite" // the database/sql driver "sqlite"
)

// openSQLite opens sqlite:///path/file.db. "sqlite:" alone is the file in the
// user's state folder.
func openSQLite(ctx context.Context, from storeURL) (*openStore, error) {
	if from.query != "" {
		return nil, usagef("sqlite:// takes no parameters: remove the '?' and what follows, or write %%3F for a question mark in the path")
	}
	path, err := sqlitePath(from)
	if err != nil {
		return nil, err
	}
	if from.rest == "" || from.rest == "//" {
		err = prepareStateFile(path)
	} else {
		err = checkFolder(path)
	}
	if err != nil {
		return nil, cannotUse("sqlite://"+path, misconfigured(err))
	}
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(path))
	if err != nil {
		return nil, cannotUse("sqlite://"+path, misconfigured(err))
	}
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		_ = db.Close()
		if _, missing := os.Stat(path); errors.Is(missing, fs.ErrNotExist) {
			err = cannotCreate(path, err)
		}
		return nil, cannotUse("sqlite://"+path, err)
	}
	display := "sqlite://" + (&url.URL{Path: path}).EscapedPath()
	return &openStore{
		Store:     store,
		identity:  "sqlite:" + realPath(path),
		display:   display,
		closeMore: db.Close,
	}, nil
}

// sqlitePath returns the absolute path that the URL means.
func sqlitePath(from storeURL) (string, error) {
	path, ok := strings.CutPrefix(from.rest, "//")
	if path == "" {
		return stateFile()
	}
	relative := strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../")
	if !ok || !(relative || strings.HasPrefix(path, "/")) {
		return "", usagef("an SQLite file is written sqlite:///path/file.db with three slashes, or sqlite://./file.db relative to the current folder")
	}
	plain, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return "", usagef("the sqlite:// URL has a '%%' that is no escape: write %%25 for a percent sign in the path")
	case strings.ContainsRune(plain, 0):
		return "", usagef("the sqlite:// URL has a NUL character in its path")
	case strings.HasSuffix(plain, "/"):
		return "", usagef("the sqlite:// URL names a folder: add the name of a file")
	}
	absolute, err := filepath.Abs(plain)
	if err != nil {
		return "", failf(exitUnavailable, "cannot tell the current folder: %w", err)
	}
	return absolute, nil
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
