//go:build !linux

package sqllock

// These do not know the file systems of this platform.

func fileSystem(string) (kind string, remote bool) { return "", false }
func isReadOnly(string) bool                       { return false }
