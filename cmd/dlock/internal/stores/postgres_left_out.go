//go:build nopostgres || onlysqlite

package stores

func (s *SQLServer) locatePostgres() error {
	return URLErrorf("%s is not in this build of dlock", s.url.Scheme)
}
