package stage

import (
	"flag"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Options are what the command line says about the stories that are played on any store. A size of zero is
// that of the story.
type Options struct {
	Store    string // the URL of a store that exists; empty: the story makes one
	Database string // the URL of a database for the stock; empty: an SQLite file

	Processes, Clients, Requests, Stock int
	Think, TTL                          time.Duration
	Nginx                               bool
}

// Flags adds the options to a command line.
func (o *Options) Flags(flags *flag.FlagSet) {
	flags.StringVar(&o.Database, "db", "", "oversell and pause: the `URL` of a database for the stock, mysql://, mariadb:// or postgres://; default an SQLite file")
	flags.IntVar(&o.Processes, "processes", 0, "oversell and token: `N` processes")
	flags.IntVar(&o.Clients, "clients", 0, "oversell: `N` clients at once")
	flags.IntVar(&o.Requests, "requests", 0, "oversell and token: `N` requests of each client, or process")
	flags.IntVar(&o.Stock, "stock", 0, "oversell: `N` in stock, fewer than there are requests")
	flags.Var((*seconds)(&o.Think), "think", "oversell: the `time` from reading the stock to writing it")
	flags.Var((*seconds)(&o.TTL), "ttl", "pause: the `time` after which the lock of the paused process expires")
	flags.BoolVar(&o.Nginx, "nginx", false, "oversell: balance with the nginx that is installed")
}

// Check rejects what no machine can do.
func (o *Options) Check() error {
	const maxProcesses, maxClients, maxRequests, minTTL, maxTTL = 50, 1000, 2000, 500 * time.Millisecond, time.Minute
	for _, size := range []struct {
		name      string
		value, up int
	}{{"processes", o.Processes, maxProcesses}, {"clients", o.Clients, maxClients}, {"requests", o.Requests, maxRequests}, {"stock", o.Stock, maxClients * maxRequests}} {
		if size.value < 0 || size.value > size.up {
			return fmt.Errorf("--%s %d is outside 1 to %d", size.name, size.value, size.up)
		}
	}
	switch {
	case o.Think < 0:
		return fmt.Errorf("--think %v is negative", o.Think)
	case o.TTL != 0 && (o.TTL < minTTL || o.TTL > maxTTL):
		return fmt.Errorf("--ttl %v is outside %v to %v", o.TTL, minTTL, maxTTL)
	}
	return nil
}

// Clean removes the passwords of the options from a text.
func (o *Options) Clean(text string) string {
	for _, raw := range []string{o.Store, o.Database} {
		for _, secret := range secrets(raw) {
			text = strings.ReplaceAll(text, secret, "xxxxx")
		}
	}
	return text
}

// secrets returns the passwords of a URL, as they are written there and as a server knows them.
func secrets(raw string) (all []string) {
	_, rest, _ := strings.Cut(raw, "://")
	rest, query, _ := strings.Cut(rest, "?")
	add := func(written string) {
		if plain, err := url.QueryUnescape(strings.ReplaceAll(written, "+", "%2B")); err == nil {
			all = append(all, plain)
		}
		all = append(all, written)
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, found := strings.Cut(rest[:at], ":"); found && password != "" {
			add(password)
		}
	}
	for pair := range strings.SplitSeq(query, "&") {
		if key, value, _ := strings.Cut(pair, "="); strings.Contains(strings.ToLower(key), "pass") && value != "" {
			add(value)
		}
	}
	return all
}

// seconds is a duration on the command line. A number without a unit is in seconds.
type seconds time.Duration

func (s *seconds) String() string { return time.Duration(*s).String() }

// Set implements flag.Value.
func (s *seconds) Set(text string) error {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		*s = seconds(n * float64(time.Second))
		return nil
	}
	d, err := time.ParseDuration(text)
	*s = seconds(d)
	return err
}
