package interop

import (
	"context"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) {
	redis.SetLogger(quiet{})
	os.Exit(m.Run())
}

// quiet drops what go-redis writes about servers that are dead on purpose.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}
