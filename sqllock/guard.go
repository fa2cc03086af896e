package sqllock

import (
	"context"
	"database/sql"
)

// begin begins a transaction; release is to be called when it is over.
//
// The server is to end it if this process vanishes or is stopped in the middle, or
// the rows would stay locked for as long as the server waits for its clients. Where
// that is a setting of the connection, it is lifted after the transaction, of which
// no part is then without it. The connection is the program's own, so it goes back
// to the pool as it was, or not at all.
func (s *Store) begin(ctx context.Context) (tx *sql.Tx, release func(), err error) {
	if s.profile.guard == "" {
		tx, err = s.db.BeginTx(ctx, s.profile.tx)
		return tx, func() {}, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	release = func() {
		if _, err := conn.ExecContext(ctx, s.profile.unguard); err != nil {
			_ = conn.Raw(endConn)
		}
		_ = conn.Close() // it may be closed already
	}
	if _, err = conn.ExecContext(ctx, s.profile.guard); err == nil {
		tx, err = conn.BeginTx(ctx, s.profile.tx)
	}
	if err != nil {
		release()
		return nil, nil, err
	}
	return tx, release, nil
}
