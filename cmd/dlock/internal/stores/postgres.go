//go:build !nopostgres && !onlysqlite

package stores

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"
)

var _ = register(openSQL, "postgres", "postgresql")

// locatePostgres finds the hosts and the database. What the URL does not contain comes from
// PGHOST, PGUSER and the like, as for psql.
func (s *sqlServer) locatePostgres() error {
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
	s.Database = config.Database
	s.hosts = []string{postgresHost(config.Host, config.Port)}
	for _, fallback := range config.Fallbacks { // with TLS and without
		if host := postgresHost(fallback.Host, fallback.Port); !slices.Contains(s.hosts, host) {
			s.hosts = append(s.hosts, host)
		}
	}
	if strings.HasPrefix(config.Host, "/") {
		s.place = "/" + url.PathEscape(s.Database) + "?host=" + (&url.URL{Path: config.Host}).EscapedPath()
	} else {
		s.place = strings.Join(s.hosts, ",") + "/" + url.PathEscape(s.Database)
	}
	return nil
}

func postgresHost(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return realPath(host) + ":" + strconv.Itoa(int(port))
	}
	return strings.ToLower(net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(int(port))))
}
