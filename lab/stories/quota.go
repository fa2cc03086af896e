//go:build linux

package stories

import (
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// quota is the space that an etcd server allows itself. When it is used up, etcd refuses every
// write but deletions and renewals of leases, until an operator makes space and ends the alarm.
type quota struct{ client *clientv3.Client }

const quotaBytes = 4 << 20

func onQuota() (*stage.Server, error) {
	s, err := stage.Start(servers.Etcd, "", fmt.Sprintf("--quota-backend-bytes=%d", quotaBytes))
	if err != nil {
		return nil, err
	}
	stop := s.Stop
	client, err := clientv3.New(clientv3.Config{Endpoints: s.Addrs, Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, stop())
	}
	s.Any = &quota{client}
	s.Stop = func() error { return errors.Join(client.Close(), stop()) }
	return s, nil
}

func (q *quota) exhaust(s *stage.Stage) {
	value := strings.Repeat("x", 1<<18)
	for i := range 1000 { // etcd counts what it has written to its file, ten times a second
		_, err := q.client.Put(s.Context(), fmt.Sprint(fillKey, i), value)
		if errors.Is(err, rpctypes.ErrNoSpace) {
			s.Harm("etcd's quota is used up")
			return
		}
		s.Must(err)
	}
	s.Must(errors.New("etcd does not keep to its quota"))
}

// free does what etcd's documentation asks of an operator.
func (q *quota) free(s *stage.Stage) {
	deleted, err := q.client.Delete(s.Context(), fillKey, clientv3.WithPrefix())
	s.Must(err)
	_, err = q.client.Compact(s.Context(), deleted.Header.Revision, clientv3.WithCompactPhysical())
	s.Must(err)
	_, err = q.client.Defragment(s.Context(), q.client.Endpoints()[0])
	s.Must(err)
	_, err = q.client.AlarmDisarm(s.Context(), &clientv3.AlarmMember{})
	s.Must(err)
	s.Harm("there is space again")
}
