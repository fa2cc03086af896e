package memcached

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	on(servers.Run(t, servers.Memcached)).Conform(t, drivertest.Config{TTL: 2 * time.Second})
}

// keys returns the keys of all items that have not expired.
func keys(ctx context.Context, addr string) (found []string, err error) {
	text, err := converse(ctx, addr, "lru_crawler metadump all\r\n", "END")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if key, ok := strings.CutPrefix(line, "key="); ok {
			key, _, _ = strings.Cut(key, " ")
			reply, err := converse(ctx, addr, "mg "+unescape(key)+"\r\n", "")
			if err != nil {
				return nil, err
			}
			if strings.HasPrefix(reply, "HD") {
				found = append(found, key)
			}
		}
	}
	return found, nil
}

// unescape undoes the escaping of the crawler.
func unescape(key string) string {
	return strings.NewReplacer("%3A", ":", "%2F", "/", "%23", "#").Replace(key)
}

// converse sends a command and reads until a line starts with end, or one line if end is empty.
func converse(ctx context.Context, addr, command, end string) (string, error) {
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprint(c, command); err != nil {
		return "", err
	}
	var text strings.Builder
	for in := bufio.NewReader(c); ; {
		line, err := in.ReadString('\n')
		if err != nil {
			return "", err
		}
		if end == "" || strings.HasPrefix(line, end) {
			if end == "" {
				text.WriteString(line)
			}
			return text.String(), nil
		}
		text.WriteString(line)
	}
}
