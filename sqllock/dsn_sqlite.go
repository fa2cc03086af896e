package sqllock

import (
	"path/filepath"
	"strings"
)

// SQLiteDSN returns the data source name with which modernc.org/sqlite opens
// the file at path as this package recommends. Any path is fine, whatever
// characters it has.
//
// Write-ahead logging lets waiters look without stopping the holder,
// synchronous FULL makes a lock survive a power failure, and transactions take
// the write lock when they begin. The busy timeout is very short because the
// store itself goes on trying, more evenly than SQLite does, and heeds the
// caller's context meanwhile. It is meant for the store: a program that keeps
// tables of its own in the file should open it a second time, with a timeout to
// its taste.
func SQLiteDSN(path string) string {
	const settings = "?_pragma=busy_timeout(5)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
	path = filepath.Clean(path) // also keeps "//host" from being a host
	slashed := filepath.ToSlash(path)
	if filepath.VolumeName(path) != "" {
		slashed = "/" + slashed
	}
	const plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/:"
	const hex = "0123456789ABCDEF"
	var dsn strings.Builder
	dsn.WriteString("file:")
	for _, c := range []byte(slashed) {
		if strings.IndexByte(plain, c) >= 0 {
			dsn.WriteByte(c)
		} else {
			dsn.WriteByte('%')
			dsn.WriteByte(hex[c>>4])
			dsn.WriteByte(hex[c&15])
		}
	}
	return dsn.String() + settings
}
