package sqldb

import (
	"context"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
)

// The drivers decide whether a connection is encrypted, and may fall back, so the server is asked. A pooler is
// asked in the place of a client: what is encrypted then is its own connection.

// MySQLEncryption examines the connection to a server.
func MySQLEncryption(ctx context.Context, on Queryer) (driver.Finding, error) {
	var name, cipher, user string
	err := on.QueryRowContext(ctx, `SHOW STATUS LIKE 'Ssl_cipher'`).Scan(&name, &cipher)
	if err == nil {
		err = on.QueryRowContext(ctx, `SELECT USER()`).Scan(&user)
	}
	host := user[strings.LastIndexByte(user, '@')+1:]
	return finding.Encryption(cipher != "", host, "Set tls=true in the DSN or the URL, or ca=FILE on the command line."), err
}

// PostgresEncryption examines the connection to a server. A socket has no address.
func PostgresEncryption(ctx context.Context, on Queryer) (driver.Finding, error) {
	var encrypted bool
	var host string
	err := on.QueryRowContext(ctx, `SELECT COALESCE((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), FALSE), COALESCE(host(inet_client_addr()), '/')`).Scan(&encrypted, &host)
	return finding.Encryption(encrypted, host, "Set sslmode=verify-full in the URL; prefer, the default, falls back to plaintext."), err
}
