//go:build !nomysql && !onlysqlite

package stores

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-sql-driver/mysql" // also the database/sql driver "mysql"
)

// quietMySQL ends the log of the driver, which repeats its errors.
var quietMySQL = sync.OnceFunc(func() {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // fails only without a logger
})

var _ = register(func(ctx context.Context, raw string) (driver.Store, error) {
	quietMySQL()
	raw, err := registerAuthority(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", driver.ErrMisconfigured, err)
	}
	return openSQL(ctx, raw)
}, "mysql", "mariadb")

// registerAuthority makes the driver of MySQL trust the authority in the file of ?ca=. It
// returns the URL with the name under which the driver knows the authority.
func registerAuthority(raw string) (string, error) {
	whole, query, _ := strings.Cut(raw, "?")
	if strings.Contains(query, "@") { // may be a part of a password, and is rejected later
		return raw, nil
	}
	var others []string
	file := ""
	for pair := range strings.SplitSeq(query, "&") {
		if value, found := strings.CutPrefix(pair, "ca="); found {
			file, _ = url.QueryUnescape(value)
		} else if !strings.HasPrefix(pair, "tls=") {
			others = append(others, pair)
		}
	}
	if file == "" {
		return raw, nil
	}
	certificate, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("the authority of ?ca= cannot be read: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certificate) {
		return "", fmt.Errorf("the file of ?ca= contains no certificate")
	}
	name := fmt.Sprintf("dlock-%x", file)
	if err := mysql.RegisterTLSConfig(name, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}); err != nil {
		return "", err
	}
	return whole + "?" + strings.Join(append(others, "tls="+name), "&"), nil
}
