package main

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// openPostgres opens postgres://user:password@host:port/database. A socket is
// postgres:///database?host=/folder, and what is missing comes from PGHOST,
// PGUSER and the like, as for psql.
func openPostgres(ctx context.Context, from storeURL) (*openStore, error) {
	target, err := postgresTarget(from)
	if err != nil {
		return nil, err
	}
	return openSQL(ctx, target)
}

func postgresTarget(from storeURL) (*sqlTarget, error) {
	u, err := parseSQL(from)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(u.postgres())
	if err != nil {
		return nil, usagef("%w", err)
	}
	if config.Database == "" {
		return nil, usagef("the name of the database is missing: write %s%s", from.scheme, sqlForm)
	}
	hosts := postgresHosts(config)
	database := url.PathEscape(config.Database)
	target := &sqlTarget{kind: "postgres", dialect: sqllock.Postgres, scheme: u.scheme, prefix: u.prefix}
	if strings.HasPrefix(config.Host, "/") {
		target.place = "/" + database + "?host=" + (&url.URL{Path: config.Host}).EscapedPath()
	} else {
		target.place = strings.Join(hosts, ",") + "/" + database
	}
	slices.Sort(hosts)
	target.identity = strings.Join(slices.Compact(hosts), ",") + "|" + config.Database
	target.open = func() *sql.DB { return stdlib.OpenDB(*config) }
	return target, nil
}

// postgres is the URL for the driver. By default it prepares no statements that
// outlive a query: behind PgBouncer they would be another connection's.
func (u *sqlURL) postgres() string {
	if u.parameter("default_query_exec_mode") == "" {
		u.parameters = append(u.parameters, "default_query_exec_mode=exec")
	}
	if u.parameter("connect_timeout") == "" {
		u.parameters = append(u.parameters, fmt.Sprintf("connect_timeout=%d", int(dialTimeout.Seconds())))
	}
	who := ""
	switch {
	case u.password != "":
		who = url.UserPassword(u.user, u.password).String() + "@"
	case u.user != "":
		who = url.User(u.user).String() + "@"
	}
	return "postgres://" + who + u.hosts + "/" + url.PathEscape(u.database) + "?" + strings.Join(u.parameters, "&")
}

// postgresHosts are all hosts, as host:port in lower case. Each may be there
// twice, with TLS and without.
func postgresHosts(config *pgx.ConnConfig) []string {
	hosts := []string{postgresHost(config.Host, config.Port)}
	for _, fallback := range config.Fallbacks {
		if host := postgresHost(fallback.Host, fallback.Port); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

func postgresHost(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return realPath(host) + ":" + strconv.Itoa(int(port))
	}
	return strings.ToLower(net.JoinHostPort(cmp.Or(host, "localhost"), strconv.Itoa(int(port))))
}
