package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/go-sql-driver/mysql"
)

// defaultMySQLPort is that of MariaDB too.
const defaultMySQLPort = "3306"

// openMySQL opens mysql://user:password@host:port/database, or the same of a
// MariaDB. A socket is mysql://user:password@/database?socket=/path.
func openMySQL(ctx context.Context, from storeURL) (*openStore, error) {
	target, err := mysqlTarget(from)
	if err != nil {
		return nil, err
	}
	return openSQL(ctx, target)
}

func mysqlTarget(from storeURL) (*sqlTarget, error) {
	u, err := parseSQL(from)
	if err != nil {
		return nil, err
	}
	if u.database == "" {
		return nil, usagef("the name of the database is missing: write %s%s", from.scheme, sqlForm)
	}
	socket, authority := u.parameter("socket"), u.parameter("ca")
	u.drop("socket")
	u.drop("ca")
	// The driver looks for the last '/' to find where the parameters begin.
	config, err := mysql.ParseDSN("/?" + strings.ReplaceAll(strings.Join(u.parameters, "&"), "/", "%2F"))
	if err != nil {
		return nil, usagef("the parameters of the store URL: %w", err)
	}
	config.User, config.Passwd, config.DBName = u.user, u.password, u.database
	config.Timeout = cmp.Or(config.Timeout, dialTimeout)
	config.Logger = &mysql.NopLogger{} // what matters comes back as an error
	target := &sqlTarget{kind: "mysql", dialect: sqllock.MySQL, scheme: u.scheme, prefix: u.prefix}
	if err := target.locateMySQL(config, u, socket); err != nil {
		return nil, err
	}
	if err := secureMySQL(config, authority); err != nil {
		return nil, err
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, usagef("the parameters of the store URL: %w", err)
	}
	target.open = func() *sql.DB { return sql.OpenDB(connector) }
	return target, nil
}

// locateMySQL says where the server is: to the driver, to people, and for
// comparison.
func (t *sqlTarget) locateMySQL(config *mysql.Config, u *sqlURL, socket string) error {
	database := url.PathEscape(u.database)
	if socket != "" {
		if u.hosts != "" {
			return usagef("the store URL names both a host and a socket")
		}
		config.Net, config.Addr = "unix", socket
		t.place = "/" + database + "?socket=" + (&url.URL{Path: socket}).EscapedPath()
		t.identity = realPath(socket) + "|" + u.database
		return nil
	}
	host, port, err := splitHost(u.hosts, defaultMySQLPort)
	if err != nil {
		return err
	}
	config.Net, config.Addr = "tcp", net.JoinHostPort(host, port)
	t.place = u.hosts + "/" + database
	t.identity = strings.ToLower(config.Addr) + "|" + u.database
	return nil
}

// secureMySQL trusts an authority of the user's own.
func secureMySQL(config *mysql.Config, authority string) error {
	if authority == "" {
		return nil
	}
	certificate, err := os.ReadFile(authority)
	if err != nil {
		return failf(exitMisconfigured, "the authority of ?ca= cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificate) {
		return failf(exitMisconfigured, "the file of ?ca= contains no certificate")
	}
	host, _, _ := net.SplitHostPort(config.Addr) // a socket has none, and needs none
	config.TLS = &tls.Config{RootCAs: pool, ServerName: host, MinVersion: tls.VersionTLS12}
	return nil
}

// splitHost takes one host:port apart. Either may be missing.
func splitHost(text, defaultPort string) (host, port string, err error) {
	host, port = text, defaultPort
	switch {
	case strings.Contains(text, ","):
		return "", "", usagef("the store URL names several hosts: this kind of store has one server")
	case strings.HasSuffix(text, "]"):
		host = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	case strings.Contains(text, ":"):
		if host, port, err = net.SplitHostPort(text); err != nil {
			return "", "", usagef("the host of the store URL cannot be read: write host:port, and [::1]:port for IPv6")
		}
	}
	port = cmp.Or(port, defaultPort)
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", usagef("the port of the store URL is no number from 0 to 65535: if it is part of a password, write '@' as %%40 and '/' as %%2F there")
	}
	return cmp.Or(host, "localhost"), port, nil
}
