package finding

import (
	"net"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// Encryption returns the finding about a connection. The address is that of the server, or of the client as the server
// sees it; empty if it is unknown. The remedy is a sentence.
func Encryption(encrypted bool, address, remedy string) driver.Finding {
	const check = "encryption"
	switch {
	case encrypted:
		return OK(check, "The connection is encrypted.")
	case IsLoopback(address):
		return OK(check, "The connection is not encrypted, and does not leave this machine.")
	}
	return Warning(check, "The connection is not encrypted: whoever can read or change what the network transports learns the password, and can end locks. %s", remedy)
}

// IsLoopback reports whether an address is a loopback address, with or without a port, or the path of a socket.
func IsLoopback(address string) bool {
	address = strings.TrimPrefix(address, "unix:")
	if host, _, err := net.SplitHostPort(address); err == nil {
		address = host
	}
	ip := net.ParseIP(strings.Trim(address, "[]"))
	return ip.IsLoopback() || address == "localhost" || strings.HasPrefix(address, "/") || strings.HasPrefix(address, "@")
}
