package redislock

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// refusal is a server's reply.
type refusal string

func (r refusal) Error() string { return string(r) }
func (refusal) RedisError()     {}

// TestRefusedWaitIsNotReplicated: a server that has become a replica between a command and its
// WAIT has not acknowledged, and another attempt is worth it.
func TestRefusedWaitIsNotReplicated(t *testing.T) {
	for _, text := range []string{
		"ERR WAIT cannot be used with replica instances. Please also note that ...",
		"UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
	} {
		wait := redis.NewCmd(t.Context(), "wait", 1, 1000)
		wait.SetErr(refusal(text))
		err := (&sender{replicas: 1}).acknowledged(wait)
		if !errors.Is(err, ErrNotReplicated) || !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("%q: %v; want ErrNotReplicated and ErrUnreachable", text, err)
		}
	}
}
