package main

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the database/sql driver "pgx"
)

// openPostgres opens postgres://user:password@host:port/database. A socket is
// postgres:///database?host=/folder, and what is missing comes from PGHOST,
// PGUSER and the like, as for psql.
func openPostgres(ctx context.Context, from storeURL) (*openStore, error) {
	target, err := postgresTarget(from)
	if err != nil {
		return nil, err
	}
	return openSQL(ctx, from, target)
}

func postgresTarget(from storeURL) (*sqlTarget, error) {
	target, err := parseSQL(from)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(target.DSN)
	if err != nil {
		return nil, usagef("%w", err)
	}
	if config.Database == "" {
		return nil, usagef("the name of the database is missing: write %s://user:password@host:port/database", from.scheme)
	}
	hosts := postgresHosts(config)
	database := url.PathEscape(config.Database)
	if strings.HasPrefix(config.Host, "/") {
		target.place = "/" + database + "?host=" + (&url.URL{Path: config.Host}).EscapedPath()
	} else {
		target.place = strings.Join(hosts, ",") + "/" + database
	}
	slices.Sort(hosts)
	target.identity = strings.Join(slices.Compact(hosts), ",") + "|" + config.Database
	return target, nil
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
