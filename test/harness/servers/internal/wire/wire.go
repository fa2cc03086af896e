// Package wire speaks to servers over plain connections, as far as starting and inspecting
// them needs it.
package wire

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"
)

// Dial connects to addr. The connection's deadline is that of ctx.
func Dial(ctx context.Context, addr string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return conn, nil
}

// Exchange sends a request and expects an answer that begins with want.
func Exchange(ctx context.Context, addr, request, want string) error {
	conn, err := Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("answer %q to %q, want %q: %w", got[:n], request, want, err)
	}
	if string(got) != want {
		return fmt.Errorf("answer %q to %q, want %q", got, request, want)
	}
	return nil
}

// Timeout bounds one attempt to reach a server, which may hang.
const Timeout = time.Second
