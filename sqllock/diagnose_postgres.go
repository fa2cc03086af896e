package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

func (p postgres) diagnose(ctx context.Context, s *Store) ([]driver.Finding, error) { return nil, nil }
func (p postgres) follow(*Store) changes                                            { return unseen() }
func (m mysql) diagnose(ctx context.Context, s *Store) ([]driver.Finding, error)    { return nil, nil }
