package stores

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/go-sql-driver/mysql" // also the database/sql driver "mysql"
	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"
)

// forUpdateConns are the connections of scheme forupdate: one for the lock, and some that wait.
const forUpdateConns = 8

// SQLServer is the URL of an SQL server.
type SQLServer struct {
	*sqlurl.URL
	url      URL      // as sqllock.Open takes it
	place    string   // host:port/database as in a URL, without secrets and defaults
	hosts    []string // the same for all spellings of the URL
	database string
}

// openSQL opens mysql://user:password@host:port/database and the like. A socket is
// mysql://user:password@/database?socket=/path or postgres:///database?host=/folder.
func openSQL(ctx context.Context, u URL) (*Store, error) {
	server, err := ParseSQL(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := whileAnswering(ctx, openLimit) // opening takes many round trips
	defer cancel()
	var store driver.Store
	switch raw := server.url.whole(); server.Scheme {
	case sqlsession.Session.String(), sqlsession.ForUpdate.String():
		opts := &sqlsession.Options{}
		if server.Scheme == sqlsession.ForUpdate.String() {
			opts.MaxConns = forUpdateConns
		}
		store, err = sqlsession.Open(ctx, raw, opts)
		server.resolveHosts(ctx) // these stores keep no holder: the identity must tell
	default:
		store, err = sqllock.Open(ctx, raw, nil)
	}
	switch {
	case errors.Is(err, sqlurl.ErrURL):
		return nil, URLErrorf("%s", NewRedactor(u.whole()).Clean(err.Error())) // drivers may quote the URL
	case errors.Is(err, driver.ErrUnsupported): // by the server
		err = fmt.Errorf("%w: %s", driver.ErrMisconfigured, err)
	}
	if err != nil {
		return nil, server.CannotUse(err)
	}
	return &Store{Driver: store, URL: server.Shown(), Identity: server.identity()}, nil
}

// CannotUse returns an OpenError about the server, with the class of the error.
func (s *SQLServer) CannotUse(err error) error {
	if isTLSError(err) {
		err = fmt.Errorf("%w: %s", driver.ErrMisconfigured, strings.TrimPrefix(err.Error(), driver.ErrUnreachable.Error()+": "))
	} else if facts, unknown := sqldb.FactsOf(s.Dialect); unknown == nil {
		if kind := facts.Classify(err).Kind; kind != nil && !errors.Is(err, kind) {
			err = fmt.Errorf("%w: %w", kind, err)
		}
	}
	return NewOpenError(s.Shown(), s.url.whole(), err)
}

// isTLSError reports whether the server and this program do not agree about TLS.
func isTLSError(err error) bool {
	return errors.Is(err, mysql.ErrNoTLS) ||
		strings.Contains(err.Error(), "server refused TLS connection") || // pgx has no error for it
		is[*tls.CertificateVerificationError](err) || is[tls.RecordHeaderError](err) || is[tls.AlertError](err)
}

func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// ParseSQL parses the URL of an SQL server.
func ParseSQL(u URL) (*SQLServer, error) {
	silenceDrivers() // a demo calls ParseSQL without Open
	isPostgres := strings.HasPrefix(u.Scheme, "postgres")
	var err error
	if !isPostgres {
		if u, err = registerAuthority(u); err != nil {
			return nil, err
		}
	}
	parsed, err := sqlurl.Parse(u.whole())
	if err != nil {
		return nil, &URLError{err}
	}
	s := &SQLServer{URL: parsed, url: u}
	if isPostgres {
		return s, s.locatePostgres()
	}
	s.database = s.Database
	if s.Net == "unix" {
		s.hosts = []string{realPath(s.Addr)}
		s.place = "/" + url.PathEscape(s.database) + "?socket=" + NewRedactor(u.whole()).Clean((&url.URL{Path: s.Addr}).EscapedPath())
	} else {
		s.hosts = []string{strings.ToLower(s.Addr)}
		s.place = s.Hosts + "/" + url.PathEscape(s.database)
	}
	return s, nil
}

// registerAuthority makes the driver of MySQL trust the authority in the file of ?ca=. It
// returns the URL with the name under which the driver knows the authority.
func registerAuthority(u URL) (URL, error) {
	if strings.Contains(u.Query, "@") { // may be a part of a password, and is rejected later
		return u, nil
	}
	var others []string
	file := ""
	for pair := range strings.SplitSeq(u.Query, "&") {
		if value, found := strings.CutPrefix(pair, "ca="); found {
			file, _ = url.QueryUnescape(value)
		} else if !strings.HasPrefix(pair, "tls=") {
			others = append(others, pair)
		}
	}
	if file == "" {
		return u, nil
	}
	certificate, err := os.ReadFile(file)
	if err != nil {
		return u, fmt.Errorf("%w: the authority of ?ca= cannot be read: %w", driver.ErrMisconfigured, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificate) {
		return u, fmt.Errorf("%w: the file of ?ca= contains no certificate", driver.ErrMisconfigured)
	}
	name := fmt.Sprintf("dlock-%x", file)
	if err := mysql.RegisterTLSConfig(name, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}); err != nil {
		return u, fmt.Errorf("%w: %w", driver.ErrMisconfigured, err)
	}
	u.Query = strings.Join(append(others, "tls="+name), "&")
	return u, nil
}

// locatePostgres finds the hosts and the database. What the URL does not contain comes from
// PGHOST, PGUSER and the like, as for psql.
func (s *SQLServer) locatePostgres() error {
	config, err := pgx.ParseConfig(s.DSN)
	if err != nil {
		// The error quotes the DSN, which has parameters that the user did not write.
		text := err.Error()
		text = text[strings.LastIndex(text, "`: ")+len("`: "):]
		return URLErrorf("bad URL: %s", NewRedactor(s.url.whole()).Clean(text))
	}
	if config.Database == "" {
		return URLErrorf("the name of the database is missing: write %s://user:password@host:port/database", s.url.Scheme)
	}
	s.database = config.Database
	s.hosts = []string{postgresHost(config.Host, config.Port)}
	for _, fallback := range config.Fallbacks { // with TLS and without
		if host := postgresHost(fallback.Host, fallback.Port); !slices.Contains(s.hosts, host) {
			s.hosts = append(s.hosts, host)
		}
	}
	if strings.HasPrefix(config.Host, "/") {
		s.place = "/" + url.PathEscape(s.database) + "?host=" + (&url.URL{Path: config.Host}).EscapedPath()
	} else {
		s.place = strings.Join(s.hosts, ",") + "/" + url.PathEscape(s.database)
	}
	return nil
}

func postgresHost(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return realPath(host) + ":" + strconv.Itoa(int(port))
	}
	return strings.ToLower(net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(int(port))))
}

// resolveHosts replaces the hosts by their addresses. All loopback addresses
// are one host. A host that cannot be resolved stays as it is.
func (s *SQLServer) resolveHosts(ctx context.Context) {
	for i, address := range s.hosts {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			continue // a socket
		}
		addresses, err := net.DefaultResolver.LookupHost(ctx, host)
		if err != nil {
			continue
		}
		slices.Sort(addresses)
		if ip := net.ParseIP(addresses[0]); ip != nil && ip.IsLoopback() {
			addresses = []string{"localhost"}
		}
		s.hosts[i] = strings.Join(addresses, "+") + ":" + port
	}
}

// Shown returns the URL without secrets and defaults.
func (s *SQLServer) Shown() string {
	shown, mark := s.Dialect.String()+"://"+s.place, "?"
	if strings.Contains(shown, "?") {
		mark = "&"
	}
	if s.Scheme != "" && s.Scheme != sqllock.Row.String() {
		shown, mark = shown+mark+"scheme="+s.Scheme, "&"
	}
	if s.TablePrefix != "" && s.TablePrefix != sqllock.DefaultTablePrefix {
		shown += mark + "table_prefix=" + url.QueryEscape(s.TablePrefix)
	}
	return shown
}

// identity differs for schemes and tables whose locks do not exclude each other.
func (s *SQLServer) identity() string {
	return strings.Join([]string{s.Dialect.String(), strings.Join(slices.Sorted(slices.Values(s.hosts)), ","), s.database,
		cmp.Or(s.Scheme, sqllock.Row.String()), cmp.Or(s.TablePrefix, sqllock.DefaultTablePrefix)}, "|")
}
