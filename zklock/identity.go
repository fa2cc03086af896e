package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// The node with the ensemble's name, at the top whatever the root is. As a segment it is
// no lock's.
const (
	nameParent = "/%server"
	nameNode   = nameParent + "/name"
)

// Identify implements driver.Identifier. An ensemble has no name of its own, so the
// first who asks gives it one, at random, which ends with that session.
func (s *Store) Identify(ctx context.Context) (string, error) {
	return call(ctx, s, func(ctx context.Context) (name string, err error) {
		err = s.persist(ctx, func() error {
			for {
				name, err = s.name()
				if !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNodeExists) || ctx.Err() != nil {
					return err
				}
			}
		})
		return name, explain("asking for the name of the ensemble", err)
	})
}

// name reads the name, or gives one. An answer about what others do meanwhile is worth
// another try.
func (s *Store) name() (string, error) {
	if err := s.confirm(); err != nil { // the server may not have heard of it yet
		return "", err
	}
	data, _, err := s.conn.Get(nameNode)
	if !errors.Is(err, zk.ErrNoNode) {
		return string(data), err
	}
	everybody := zk.WorldACL(zk.PermAll)
	if _, err := s.conn.CreateContainer(nameParent, nil, zk.FlagContainer, everybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return "", err
	}
	name := newID()
	_, err = s.conn.Create(nameNode, []byte(name), zk.FlagEphemeral, everybody)
	return name, err
}
