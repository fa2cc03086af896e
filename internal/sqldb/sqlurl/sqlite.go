package sqlurl

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// parseSQLite reads the path of a file.
func (u *URL) parseSQLite(rest string) error {
	path, ok := strings.CutPrefix(rest, "//")
	relative := strings.HasPrefix(path, "./") || strings.HasPrefix(path, "../")
	if !ok || !(relative || strings.HasPrefix(path, "/")) {
		return errors.New("an SQLite file is written sqlite:///path/file.db with three slashes, or sqlite://./file.db relative to the current folder")
	}
	plain, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return errors.New("the path has a '%' that is not followed by two hexadecimal digits: write %25 for a percent sign")
	case strings.ContainsRune(plain, 0):
		return errors.New("the path has a NUL character")
	case strings.HasSuffix(plain, "/"):
		return errors.New("the path names a folder: add the name of a file")
	}
	if filepath.VolumeName(plain[1:]) != "" { // Windows: /C:/path
		plain = plain[1:]
	}
	if u.Path, err = filepath.Abs(plain); err != nil {
		return fmt.Errorf("cannot tell the current folder: %w", err)
	}
	u.Dialect, u.Driver, u.DSN = sqldb.SQLite, "sqlite", SQLiteDSN(u.Path)
	return nil
}

// FileURL returns the URL of the file with that absolute path.
func FileURL(path string) string {
	return "sqlite://" + (&url.URL{Path: slashed(path)}).EscapedPath()
}

// slashed returns a path with slashes, of which the first comes before a volume of Windows.
func slashed(path string) string {
	if filepath.VolumeName(path) != "" {
		return "/" + filepath.ToSlash(path)
	}
	return filepath.ToSlash(path)
}

// SQLiteDSN returns the data source name with which modernc.org/sqlite opens the file at
// path; see sqllock.SQLiteDSN.
func SQLiteDSN(path string) string {
	const settings = "?_pragma=busy_timeout(5)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
	path = filepath.Clean(path) // also keeps "//host" from being a host
	return "file:" + (&url.URL{Path: slashed(path)}).EscapedPath() + settings
}
