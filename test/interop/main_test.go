package interop

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/test/examples"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	status := m.Run()
	examples.Remove()
	os.Exit(status)
}

// quiet drops the log messages of go-redis about servers that are dead on
// purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
