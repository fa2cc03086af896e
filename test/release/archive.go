package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path"
	"time"
)

// packed is a file in an archive.
type packed struct {
	inside string // its path in the archive
	file   string
	mode   fs.FileMode
}

// writeTar writes a tar.gz file that only depends on the content of the files.
func writeTar(name, folder string, files []packed, date time.Time) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	compressed := gzip.NewWriter(out)
	archive := tar.NewWriter(compressed)
	defer func() { err = errors.Join(err, archive.Close(), compressed.Close(), out.Close()) }()
	for _, f := range files {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return err
		}
		err = archive.WriteHeader(&tar.Header{
			Name: path.Join(folder, f.inside), Mode: int64(f.mode), Size: int64(len(text)), ModTime: date, Format: tar.FormatPAX,
		})
		if err != nil {
			return err
		}
		if _, err := archive.Write(text); err != nil {
			return err
		}
	}
	return nil
}

// writeZipArchive writes a zip file that only depends on the content of the files.
func writeZipArchive(name, folder string, files []packed, date time.Time) (err error) {
	out, err := os.Create(name)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(out)
	defer func() { err = errors.Join(err, archive.Close(), out.Close()) }()
	for _, f := range files {
		text, err := os.ReadFile(f.file)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: path.Join(folder, f.inside), Method: zip.Deflate, Modified: date}
		header.SetMode(f.mode)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}
