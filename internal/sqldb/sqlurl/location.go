package sqlurl

import (
	"cmp"
	"context"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// keepNoHolder are the schemes whose locks name no holder, so that a process only knows by the identity of
// the store that it waits for itself.
var keepNoHolder = []string{"forupdate", "session"}

// Location returns where the locks of a scheme, in tables with that prefix, are. Where locks name no holder,
// it looks up the hosts, so that all names of a host are one.
func (u *URL) Location(ctx context.Context, scheme, tablePrefix string) driver.Location {
	if u.Dialect == sqldb.SQLite {
		return driver.Location{URL: FileURL(u.Path), Identity: "sqlite:" + realPath(u.Path)}
	}
	hosts, defaultPort := []string{u.Addr}, mysqlPort
	parameter, socket := "socket", u.Net == "unix"
	if u.Dialect == sqldb.Postgres {
		hosts, defaultPort = u.postgresHosts(), postgresPort
		parameter, socket = "host", strings.HasPrefix(hosts[0], "/")
	}
	var shown, query []string
	for i, host := range hosts {
		switch {
		case socket:
			path := strings.TrimSuffix(host, ":"+defaultPort)
			hosts[i] = realPath(path)
			query = []string{parameter + "=" + (&url.URL{Path: path}).EscapedPath()}
		default:
			shown = append(shown, strings.TrimSuffix(host, ":"+defaultPort))
			hosts[i] = strings.ToLower(host)
			if slices.Contains(keepNoHolder, scheme) {
				hosts[i] = resolve(ctx, hosts[i])
			}
		}
	}
	if scheme != schemes[0] {
		query = append(query, "scheme="+scheme)
	}
	tablePrefix = cmp.Or(tablePrefix, sqldb.DefaultTablePrefix)
	if tablePrefix != sqldb.DefaultTablePrefix {
		query = append(query, "table_prefix="+tablePrefix)
	}
	slices.Sort(hosts)
	at := u.Dialect.String() + "://" + strings.Join(shown, ",") + "/" + url.PathEscape(u.database()) + "?" + strings.Join(query, "&")
	return driver.Location{URL: strings.TrimSuffix(at, "?"), Identity: strings.Join(
		[]string{u.Dialect.String(), strings.Join(hosts, ","), u.database(), scheme, tablePrefix}, "|")}
}

const (
	mysqlPort    = "3306"
	postgresPort = "5432"
)

// postgresHosts returns the hosts with their ports, as pgx finds them; what the URL does not say comes from the
// same variables as for psql. The host is empty if it is the default of pgx, which depends on the machine.
func (u *URL) postgresHosts() []string {
	var hosts, ports []string
	for host := range strings.SplitSeq(u.Hosts, ",") {
		port := ""
		if end := strings.LastIndexByte(host, ':'); end > strings.LastIndexByte(host, ']') {
			host, port = host[:end], host[end+1:]
		}
		plain, _ := url.PathUnescape(host) // pgx reports what is wrong
		hosts, ports = append(hosts, plain), append(ports, port)
	}
	if named := u.parameter("host"); named != "" || u.Hosts == "" {
		hosts = strings.Split(cmp.Or(named, os.Getenv("PGHOST")), ",")
	}
	common := strings.Split(cmp.Or(u.parameter("port"), os.Getenv("PGPORT"), postgresPort), ",")
	for i := range hosts {
		port := common[min(i, len(common)-1)]
		if i < len(ports) && u.parameter("port") == "" {
			port = cmp.Or(ports[i], port)
		}
		hosts[i] += ":" + port
	}
	return hosts
}

// database returns the name of the database. It may be empty for PostgreSQL, where a file may name it.
func (u *URL) database() string {
	if u.Dialect != sqldb.Postgres {
		return u.Database
	}
	return cmp.Or(u.parameter("dbname"), u.Database, os.Getenv("PGDATABASE"))
}

// parameter returns the value of a parameter of the driver.
func (u *URL) parameter(key string) string {
	for _, pair := range u.Parameters {
		if value, found := strings.CutPrefix(pair, key+"="); found {
			plain, _ := url.QueryUnescape(value) // takeParameters has checked it
			return plain
		}
	}
	return ""
}

// resolve returns the addresses of host:port. All loopback addresses are one. A host that is unknown stays as it is.
func resolve(ctx context.Context, address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return address
	}
	slices.Sort(addresses)
	if ip := net.ParseIP(addresses[0]); ip != nil && ip.IsLoopback() {
		return "localhost:" + port
	}
	return strings.Join(addresses, "+") + ":" + port
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
