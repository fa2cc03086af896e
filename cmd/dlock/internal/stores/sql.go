package stores

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
)

// forUpdateConns are the connections of scheme forupdate: one for the lock, and some that wait.
const forUpdateConns = 8

// sqlServer is the URL of an SQL server.
type sqlServer struct {
	*sqlurl.URL
	url   URL      // as sqllock.Open takes it
	place string   // host:port/database as in a URL, without secrets and defaults
	hosts []string // the same for all spellings of the URL
}

// openSQL opens mysql://user:password@host:port/database and the like. A socket is
// mysql://user:password@/database?socket=/path or postgres:///database?host=/folder.
func openSQL(ctx context.Context, u URL) (*Store, error) {
	server, err := parseSQL(u)
	if err != nil {
		return nil, err
	}
	ctx, cancel := untilNoAnswer(ctx, openLimit) // opening takes many round trips
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
		err = fmt.Errorf("%w: %s", driver.ErrMisconfigured, err.Error())
	}
	if err != nil {
		return nil, server.CannotUse(err)
	}
	return &Store{Driver: store, URL: server.Shown(), Identity: server.identity()}, nil
}

// CannotUse is [CannotUse] for the server, with the class of the error.
func (s *sqlServer) CannotUse(err error) error {
	if isTLSError(err) {
		err = fmt.Errorf("%w: %s", driver.ErrMisconfigured, strings.TrimPrefix(err.Error(), driver.ErrUnreachable.Error()+": "))
	} else if facts, unknown := sqldb.FactsOf(s.Dialect); unknown == nil {
		if kind := facts.Classify(err).Kind; kind != nil && !errors.Is(err, kind) {
			err = fmt.Errorf("%w: %w", kind, err)
		}
	}
	return CannotUse(s.Shown(), s.url.whole(), err)
}

// isTLSError reports whether the server and this program do not agree about TLS.
func isTLSError(err error) bool {
	return isNoTLS(err) ||
		strings.Contains(err.Error(), "server refused TLS connection") || // pgx has no error for it
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(tls.AlertError))
}

// parseSQL parses the URL of an SQL server.
func parseSQL(u URL) (*sqlServer, error) {
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
	s := &sqlServer{URL: parsed, url: u}
	if isPostgres {
		return s, s.locatePostgres()
	}
	if s.Net == "unix" {
		s.hosts = []string{realPath(s.Addr)}
		s.place = "/" + url.PathEscape(s.Database) + "?socket=" + NewRedactor(u.whole()).Clean((&url.URL{Path: s.Addr}).EscapedPath())
	} else {
		s.hosts = []string{strings.ToLower(s.Addr)}
		s.place = s.Hosts + "/" + url.PathEscape(s.Database)
	}
	return s, nil
}

// resolveHosts replaces the hosts by their addresses. All loopback addresses
// are one host. A host that cannot be resolved stays as it is.
func (s *sqlServer) resolveHosts(ctx context.Context) {
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
func (s *sqlServer) Shown() string {
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
func (s *sqlServer) identity() string {
	return strings.Join([]string{s.Dialect.String(), strings.Join(slices.Sorted(slices.Values(s.hosts)), ","), s.Database,
		cmp.Or(s.Scheme, sqllock.Row.String()), cmp.Or(s.TablePrefix, sqllock.DefaultTablePrefix)}, "|")
}

// realPath resolves symbolic links, as far as the path exists.
func realPath(path string) string {
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		return resolved
	}
	if folder, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(folder, filepath.Base(path))
	}
	return path
}
