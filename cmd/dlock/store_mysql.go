package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/go-sql-driver/mysql" // also the database/sql driver "mysql"
)

// openMySQL opens mysql://user:password@host:port/database, or the same of a
// MariaDB. A socket is mysql://user:password@/database?socket=/path.
func openMySQL(ctx context.Context, from storeURL) (*openStore, error) {
	from, target, err := mysqlTarget(from)
	if err != nil {
		return nil, err
	}
	return openSQL(ctx, from, target)
}

// mysqlTarget returns the URL as sqllock.Open takes it, and what it says.
func mysqlTarget(from storeURL) (storeURL, *sqlTarget, error) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // what matters comes back as an error
	from, err := registerAuthority(from)
	if err != nil {
		return from, nil, err
	}
	target, err := parseSQL(from)
	if err != nil {
		return from, nil, err
	}
	database := url.PathEscape(target.Database)
	if target.Net == "unix" {
		target.place = "/" + database + "?socket=" + (&url.URL{Path: target.Addr}).EscapedPath()
		target.identity = realPath(target.Addr) + "|" + target.Database
	} else {
		target.place = target.Hosts + "/" + database
		target.identity = strings.ToLower(target.Addr) + "|" + target.Database
	}
	return from, target, nil
}

// registerAuthority makes the driver trust the authority in the file of ?ca=, and returns
// the URL with the name under which the driver knows it.
func registerAuthority(from storeURL) (storeURL, error) {
	if strings.Contains(from.query, "@") { // it may be a password, and is refused later
		return from, nil
	}
	var others []string
	file := ""
	for pair := range strings.SplitSeq(from.query, "&") {
		if value, found := strings.CutPrefix(pair, "ca="); found {
			file, _ = url.QueryUnescape(value)
		} else if !strings.HasPrefix(pair, "tls=") {
			others = append(others, pair)
		}
	}
	if file == "" {
		return from, nil
	}
	certificate, err := os.ReadFile(file)
	if err != nil {
		return from, failf(exitMisconfigured, "the authority of ?ca= cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificate) {
		return from, failf(exitMisconfigured, "the file of ?ca= contains no certificate")
	}
	name := fmt.Sprintf("dlock-%x", file)
	if err := mysql.RegisterTLSConfig(name, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}); err != nil {
		return from, failf(exitMisconfigured, "%w", err)
	}
	from.query = strings.Join(append(others, "tls="+name), "&")
	return from, nil
}
