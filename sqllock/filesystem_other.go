//go:build !linux

package sqllock

// fileSystem cannot tell here.
func fileSystem(string) (kind string, remote bool) { return "", false }
