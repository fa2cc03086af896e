//go:build nomysql || onlysqlite

package stores

func registerAuthority(u URL) (URL, error) { return u, nil }

func isNoTLS(error) bool { return false }
