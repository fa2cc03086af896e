//go:build !linux

package sqllock

import "os"

// These do not know the file systems of this platform.

func fileSystem(string) (kind string, remote bool) { return "", false }
func isReadOnly(string) bool                       { return false }

func isWritable(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().Perm()&0o200 != 0
}
