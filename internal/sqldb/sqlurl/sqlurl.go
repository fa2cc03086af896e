// Package sqlurl reads the URLs of SQL databases, which sqllock.Open describes, and opens their
// pools. It takes a URL apart by hand, because the errors of package net/url quote their input,
// which may be a password. No error of this package shows one.
package sqlurl

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/internal/storeurl"
)

// ErrURL reports that a URL is not one of an SQL database. The error contains no password.
var ErrURL = storeurl.ErrURL

// URL is the URL of an SQL database, taken apart and decoded.
type URL struct {
	Dialect        sqldb.Dialect
	User, Password string
	Hosts          string   // as written
	Net, Addr      string   // of a MySQL server: "tcp" and host:port, or "unix" and the path of a socket
	Database       string   // of an SQL server
	Path           string   // of an SQLite file, absolute
	Parameters     []string // of the driver: key=value as written
	Scheme         string   // how locks are kept; empty if the URL does not say it
	TablePrefix    string   // empty is the default

	Driver, DSN string // for database/sql
}

// dialTimeout is how long a server may take to accept a connection, unless the URL says
// otherwise.
const dialTimeout = 5 * time.Second

var schemes = []string{"row", "version", "forupdate", "session"}

// Parse reads a URL. Its errors wrap [ErrURL].
func Parse(raw string) (*URL, error) {
	u, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return u, nil
}

func parse(raw string) (*URL, error) {
	kind, rest, _ := strings.Cut(raw, ":")
	rest, query, _ := strings.Cut(rest, "?")
	kind = strings.ToLower(kind)
	u := &URL{}
	switch kind {
	case "sqlite":
		if query != "" {
			return nil, errors.New("sqlite:// takes no parameters: remove the '?' and what follows, or write %3F for a question mark in the path")
		}
		return u, u.parseSQLite(rest)
	case "mysql", "mariadb":
		u.Dialect = sqldb.MySQL
	case "postgres", "postgresql":
		u.Dialect = sqldb.Postgres
	default:
		return nil, errors.New("it does not begin with sqlite://, mysql://, mariadb://, postgres:// or postgresql://")
	}
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return nil, fmt.Errorf("write %s%s", kind, form)
	}
	var err error
	if u.User, u.Password, u.Hosts, u.Database, err = storeurl.Split(rest, query); err != nil {
		return nil, err
	}
	if err := u.takeParameters(query); err != nil {
		return nil, err
	}
	if u.Dialect == sqldb.MySQL {
		return u, u.parseMySQL(kind)
	}
	return u, u.parsePostgres(kind)
}

const form = "://user:password@host:port/database"

// takeParameters keeps the parameters of the store and leaves the others to the driver.
func (u *URL) takeParameters(query string) error {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(value)
		if !found || err != nil {
			return errors.New("what follows the '?' cannot be read: write key=value&key=value")
		}
		switch {
		case key == "scheme":
			if !slices.Contains(schemes, plain) {
				return fmt.Errorf("unknown scheme %q (want row, version, forupdate or session)", plain)
			}
			u.Scheme = plain
		case key == "table_prefix":
			if _, err := sqldb.NewTables(plain); err != nil {
				return err
			}
			u.TablePrefix = plain
		case key == "socket" && u.Dialect == sqldb.MySQL:
			u.Addr = plain
		default:
			u.Parameters = append(u.Parameters, pair)
		}
	}
	return nil
}

func (u *URL) has(key string) bool {
	return slices.ContainsFunc(u.Parameters, func(pair string) bool {
		return strings.HasPrefix(pair, key+"=") && pair != key+"="
	})
}

// parseMySQL makes the DSN of github.com/go-sql-driver/mysql. A socket is
// mysql://user:password@/database?socket=/path.
func (u *URL) parseMySQL(kind string) (err error) {
	switch {
	case u.Database == "":
		return fmt.Errorf("the name of the database is missing: write %s%s", kind, form)
	case strings.Contains(u.User, ":"):
		return errors.New("the name of the user has a ':', which the driver cannot take")
	case u.has("ca"):
		return errors.New("ca is unknown: register the authority with mysql.RegisterTLSConfig, and write tls= and the name of it")
	case u.Addr != "" && u.Hosts != "":
		return errors.New("it names both a host and a socket")
	case u.Addr != "": // of a socket
		u.Net = "unix"
	default:
		host, port, err := splitHost(u.Hosts)
		if err != nil {
			return err
		}
		u.Net, u.Addr = "tcp", net.JoinHostPort(host, port)
	}
	if !u.has("timeout") {
		u.Parameters = append(u.Parameters, "timeout="+dialTimeout.String())
	}
	user := ""
	if u.User != "" || u.Password != "" {
		user = u.User + ":" + u.Password + "@"
	}
	// The driver looks for the last '/' to find where the database begins.
	parameters := strings.ReplaceAll(strings.Join(u.Parameters, "&"), "/", "%2F")
	u.Driver = "mysql"
	u.DSN = user + u.Net + "(" + u.Addr + ")/" + url.PathEscape(u.Database) + "?" + parameters
	return nil
}

// splitHost takes host:port of a MySQL server apart. Either may be missing.
func splitHost(text string) (host, port string, err error) {
	host = text
	switch {
	case strings.Contains(text, ","):
		return "", "", errors.New("it names several hosts: this kind of store has one server")
	case strings.HasSuffix(text, "]"):
		host = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	case strings.Contains(text, ":"):
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", "", errors.New("the host cannot be read: write host:port, and [::1]:port for IPv6")
		}
	}
	port = cmp.Or(port, mysqlPort)
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", errors.New("the port is no number from 0 to 65535: if it is part of a password, write '@' as %40 and '/' as %2F there")
	}
	return cmp.Or(host, "localhost"), port, nil
}

// parsePostgres makes the DSN of github.com/jackc/pgx/v5/stdlib, which also reads PGHOST,
// PGUSER and the like. By default it prepares no statements that outlive a query: behind
// PgBouncer they would belong to another connection. Names are UTF-8, whatever the default of the
// database is.
func (u *URL) parsePostgres(kind string) error {
	inFile := u.parameter("service") != "" || os.Getenv("PGSERVICE") != ""
	if u.database() == "" && !inFile {
		return fmt.Errorf("the name of the database is missing: write %s%s", kind, form)
	}
	if !u.has("default_query_exec_mode") {
		u.Parameters = append(u.Parameters, "default_query_exec_mode=exec")
	}
	if !u.has("client_encoding") {
		u.Parameters = append(u.Parameters, "client_encoding=UTF8")
	}
	if !u.has("connect_timeout") {
		u.Parameters = append(u.Parameters, fmt.Sprintf("connect_timeout=%d", int(dialTimeout.Seconds())))
	}
	user := ""
	switch {
	case u.Password != "":
		user = url.UserPassword(u.User, u.Password).String() + "@"
	case u.User != "":
		user = url.User(u.User).String() + "@"
	}
	u.Driver = "pgx"
	u.DSN = "postgres://" + user + u.Hosts + "/" + url.PathEscape(u.Database) + "?" + strings.Join(u.Parameters, "&")
	return nil
}

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

// SQLiteDSN is sqllock.SQLiteDSN.
func SQLiteDSN(path string) string {
	const settings = "?_pragma=busy_timeout(5)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate"
	path = filepath.Clean(path) // also keeps "//host" from being a host
	return "file:" + (&url.URL{Path: slashed(path)}).EscapedPath() + settings
}

// imports are the packages that register the drivers.
var imports = map[string]string{
	"sqlite": "modernc.org/sqlite",
	"mysql":  "github.com/go-sql-driver/mysql",
	"pgx":    "github.com/jackc/pgx/v5/stdlib",
}

const (
	// firstAnswerLimit is how long a server may take for its first answer.
	firstAnswerLimit = 5 * time.Second
	// idleLimit closes connections that are not needed.
	idleLimit = time.Minute
)

// Open opens a pool, to a server of at most maxConns connections; zero is no limit. It fails if
// the server does not answer. It leaves every other failure to the store, which explains it.
func (u *URL) Open(ctx context.Context, maxConns int) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), u.Driver) {
		return nil, fmt.Errorf("the database/sql driver %q is not registered: import _ %q", u.Driver, imports[u.Driver])
	}
	db, err := sql.Open(u.Driver, u.DSN)
	if err != nil {
		return nil, fmt.Errorf("%w: the parameters: %w", ErrURL, err)
	}
	if u.Dialect == sqldb.SQLite {
		return db, nil
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(max(maxConns, 4))
	db.SetConnMaxIdleTime(idleLimit)
	if err := u.firstAnswer(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func (u *URL) firstAnswer(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeoutCause(ctx, firstAnswerLimit, fmt.Errorf("%w: no answer within %v", driver.ErrUnreachable, firstAnswerLimit))
	defer cancel()
	err := db.PingContext(ctx)
	switch cause := deadline.Passed(ctx); {
	case err == nil:
		return nil
	case isParseError(err):
		// The error quotes the DSN, which has parameters that the user did not write.
		text := err.Error()
		return fmt.Errorf("%w: %s", ErrURL, text[strings.LastIndex(text, "`: ")+len("`: "):])
	case cause == nil, errors.Is(cause, driver.ErrUnreachable):
		return cause
	}
	return sqldb.Failure{}.Describe(ctx, "open", err)
}

// isParseError reports whether pgx, which reads the DSN when it connects, could not. The
// error of pgx hides the password.
func isParseError(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if reflect.TypeOf(err).String() == "*pgconn.ParseConfigError" {
			return true
		}
	}
	return false
}
