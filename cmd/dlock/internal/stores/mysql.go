//go:build !nomysql && !onlysqlite

package stores

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
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

var _ = register(openSQL, "mysql", "mariadb")

func isNoTLS(err error) bool { return errors.Is(err, mysql.ErrNoTLS) }

// registerAuthority makes the driver of MySQL trust the authority in the file of ?ca=. It
// returns the URL with the name under which the driver knows the authority.
func registerAuthority(u URL) (URL, error) {
	quietMySQL()
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
