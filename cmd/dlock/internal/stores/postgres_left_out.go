//go:build nopostgres || onlysqlite

package stores

func (s *sqlServer) locatePostgres() error {
	return URLErrorf("%s is not in this build of dlock", s.url.Scheme)
}
