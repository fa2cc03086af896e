//go:build !linux

package sqllock

// fileSystem does not know file systems of this platform.
func fileSystem(string) (kind string, remote bool) { return "", false }

// isReadOnly does not know it on this platform.
func isReadOnly(string) bool { return false }
