package zklock

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"
)

// Open is [New] with everything in a URL.
//
//	zookeeper://[user:password@]host:port,host:port[/root]
//
// Parameters: order=fair or unfair; timeout=10s, that of the session; create=true, to
// create the root; acl=world or creator, where creator is the user and nobody else;
// tls=true; ca=FILE, a certificate authority to trust; cert=FILE and key=FILE, the
// client's certificate.
//
// A password is written with %3F for '?', %40 for '@' and %25 for '%'. Errors contain
// no password.
func Open(rawURL string) (*Store, error) {
	servers, opts, err := parseURL(rawURL)
	if err != nil {
		return nil, err
	}
	return New(servers, opts)
}

var errURL = errors.New("zklock: bad URL")

// parseURL takes a URL apart by hand: the errors of package net/url quote their
// input, and it does not know lists of hosts.
func parseURL(raw string) (servers []string, opts *Options, err error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || !strings.EqualFold(scheme, "zookeeper") {
		return nil, nil, fmt.Errorf("%w: it does not begin with zookeeper://", errURL)
	}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") {
		// The '?' may be one of the password. Guessing would show it, or send
		// it to another host.
		return nil, nil, fmt.Errorf("%w: an '@' follows the '?': write '?' as %%3F in a password, and '@' as %%40 in a parameter", errURL)
	}
	opts = &Options{}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := opts.parseUser(rest[:at]); err != nil {
			return nil, nil, err
		}
		rest = rest[at+1:]
	}
	hosts, root, _ := strings.Cut(rest, "/")
	if servers, err = parseHosts(hosts); err != nil {
		return nil, nil, err
	}
	if opts.Root, err = url.PathUnescape(root); err != nil {
		return nil, nil, fmt.Errorf("%w: the root has a '%%' that is not followed by two hexadecimal digits", errURL)
	}
	return servers, opts, opts.parseQuery(query)
}

func (o *Options) parseUser(info string) error {
	user, password, _ := strings.Cut(info, ":")
	var err error
	if o.User, err = url.PathUnescape(user); err == nil {
		o.Password, err = url.PathUnescape(password)
	}
	if err != nil {
		return fmt.Errorf("%w: the user or the password has a '%%' that is not followed by two hexadecimal digits", errURL)
	}
	return nil
}

func parseHosts(list string) (servers []string, err error) {
	for host := range strings.SplitSeq(list, ",") {
		if host == "" {
			return nil, fmt.Errorf("%w: a host is missing", errURL)
		}
		if end := strings.LastIndexByte(host, ']'); strings.LastIndexByte(host, ':') <= end {
			host += ":" + strconv.Itoa(zk.DefaultPort)
		}
		_, port, err := net.SplitHostPort(host)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: a host is not followed by a port that is a number; a password is followed by '@'", errURL)
		}
		servers = append(servers, host)
	}
	return servers, nil
}

func (o *Options) parseQuery(text string) error {
	query, err := url.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("%w: what follows the '?' cannot be read", errURL)
	}
	files := make(map[string]string)
	secure := false
	for name := range query {
		value := query.Get(name)
		switch name {
		case "order":
			err = oneOf(name, value, map[string]func(){"fair": func() {}, "unfair": func() { o.Order = Unfair }})
		case "timeout":
			if o.Timeout, err = time.ParseDuration(value); err != nil || o.Timeout <= 0 {
				err = fmt.Errorf("%w: timeout is %q, not a duration such as 10s", errURL, value)
			}
		case "create":
			err = oneOf(name, value, map[string]func(){"true": func() { o.CreateRoot = true }, "false": func() {}})
		case "acl":
			err = oneOf(name, value, map[string]func(){"world": func() {}, "creator": func() { o.ACL = zk.AuthACL(zk.PermAll) }})
		case "tls":
			err = oneOf(name, value, map[string]func(){"true": func() { secure = true }, "false": func() {}})
		case "ca", "cert", "key":
			files[name] = value
		default: // its name may be a part of a password
			err = fmt.Errorf("%w: a parameter is none of order, timeout, create, acl, tls, ca, cert and key", errURL)
		}
		if err != nil {
			return err
		}
	}
	switch {
	case o.ACL != nil && o.User == "":
		return fmt.Errorf("%w: acl=creator needs a user", errURL)
	case !secure && len(files) > 0:
		return fmt.Errorf("%w: ca, cert and key need tls=true", errURL)
	case secure:
		o.TLS, err = loadTLS(files)
	}
	return err
}

// oneOf does what belongs to a word.
func oneOf(name, value string, words map[string]func()) error {
	do, ok := words[value]
	if !ok {
		return fmt.Errorf("%w: %s is %q", errURL, name, value)
	}
	do()
	return nil
}

func loadTLS(files map[string]string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := files["ca"]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%w: ca: %w", errURL, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%w: ca: no certificate in %s", errURL, file)
		}
	}
	if files["cert"] != "" || files["key"] != "" {
		pair, err := tls.LoadX509KeyPair(files["cert"], files["key"])
		if err != nil {
			return nil, fmt.Errorf("%w: cert and key: %w", errURL, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
