package main

import (
	"errors"
	"io/fs"
	"os"

	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
)

// outputFile is a file that is written at the end of something that takes a while. One
// that was not asked for does nothing.
type outputFile struct {
	file    *os.File
	created bool // it was not there before, and is not written yet
}

// open finds out that the file cannot be written. What is in it stays until write.
func (o *outputFile) open(path string) error {
	if path == "" {
		return nil
	}
	_, err := os.Lstat(path)
	o.created = errors.Is(err, fs.ErrNotExist)
	if o.file, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
		return usagef("cannot write the file: %w", err)
	}
	return nil
}

// write replaces what is in the file.
func (o *outputFile) write(text string) error {
	if o.file == nil {
		return nil
	}
	o.created = false
	if info, err := o.file.Stat(); err == nil && info.Mode().IsRegular() {
		if err := o.file.Truncate(0); err != nil {
			return terminal.OutputError(err)
		}
	}
	_, err := o.file.WriteString(text)
	return terminal.OutputError(err)
}

// close leaves no empty file behind if there was nothing to write.
func (o *outputFile) close() {
	if o.file == nil {
		return
	}
	_ = o.file.Close() // what was written has been checked
	if o.created {
		_ = os.Remove(o.file.Name()) // it is empty at worst
	}
}
