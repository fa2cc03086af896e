package sqlurl

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

const mysqlPort = "3306"

// parseMySQL makes the DSN of github.com/go-sql-driver/mysql. A socket is
// mysql://user:password@/database?socket=/path.
func (u *URL) parseMySQL(kind string) (err error) {
	socket := u.take("socket")
	switch {
	case u.Database == "":
		return fmt.Errorf("the name of the database is missing: write %s%s", kind, form)
	case strings.Contains(u.User, ":"):
		return errors.New("the name of the user has a ':', which the driver cannot take")
	case u.has("ca"):
		return errors.New("ca is unknown: register the authority with mysql.RegisterTLSConfig, and write tls= and the name of it")
	case socket != "" && u.Hosts != "":
		return errors.New("it names both a host and a socket")
	case socket != "":
		u.Net, u.Addr = "unix", socket
	default:
		host, port, err := splitHost(u.Hosts, mysqlPort)
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

// splitHost takes host:port apart. Either may be missing.
func splitHost(text, defaultPort string) (host, port string, err error) {
	host, port = text, defaultPort
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
	port = cmp.Or(port, defaultPort)
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", "", errors.New("the port is no number from 0 to 65535: if it is part of a password, write '@' as %40 and '/' as %2F there")
	}
	return cmp.Or(host, "localhost"), port, nil
}

// parsePostgres makes the DSN of github.com/jackc/pgx/v5/stdlib. What is missing comes
// from PGHOST, PGUSER and the like. By default the driver prepares no statements that
// outlive a query: behind PgBouncer they would belong to another connection.
func (u *URL) parsePostgres() {
	if !u.has("default_query_exec_mode") {
		u.Parameters = append(u.Parameters, "default_query_exec_mode=exec")
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
}
