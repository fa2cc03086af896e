// Package storeurl parses the URLs of stores. It does not use url.Parse, whose errors
// quote their input, which may be a password, and which does not support lists of
// hosts. The errors of this package quote nothing but the value of a known parameter, which
// may be a path, and a number of five digits that is too large for a port.
package storeurl

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// ErrURL is wrapped by the errors of a store about its URL.
var ErrURL = errors.New("bad URL")

// URL is scheme://user:password@host:port,host:port/path?parameters.
type URL struct {
	Scheme         string // in lower case
	User, Password string
	Hosts          []string // at least one, each with a port
	Path           string   // what follows the '/' after the hosts, decoded

	query url.Values
	port  string // the default one
}

// Scheme is a scheme that a store supports, with its default port.
type Scheme struct{ Name, Port string }

// Parse parses a URL with one of the schemes.
func Parse(raw string, schemes ...Scheme) (*URL, error) {
	u := &URL{}
	name, rest, found := strings.Cut(raw, "://")
	for _, s := range schemes {
		if found && strings.EqualFold(name, s.Name) {
			u.Scheme, u.port = s.Name, s.Port
		}
	}
	if u.port == "" {
		return nil, fmt.Errorf("it does not begin with %s", list(schemes))
	}
	rest, query, _ := strings.Cut(rest, "?")
	var hosts string
	var err error
	if u.User, u.Password, hosts, u.Path, err = Split(rest, query); err != nil {
		return nil, err
	}
	if err := u.parseQuery(query); err != nil {
		return nil, err
	}
	return u, u.parseHosts(hosts)
}

// Split takes user:password@hosts/path apart, and decodes all but the hosts. The query, which follows
// them in the URL, is only checked.
func Split(text, query string) (user, password, hosts, path string, err error) {
	if strings.Contains(query, "@") {
		// The '?' may belong to the password. A wrong guess would show the
		// password, or send it to another host.
		return "", "", "", "", errors.New("an '@' follows the '?': write '?' as %3F in a password, and '@' as %40 in a parameter")
	}
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		user, password, _ = strings.Cut(text[:at], ":")
		text = text[at+1:]
	}
	hosts, path, _ = strings.Cut(text, "/")
	for _, part := range []*string{&user, &password, &path} {
		if *part, err = url.PathUnescape(*part); err != nil {
			return "", "", "", "", errors.New("a '%' is not followed by two hexadecimal digits: write %25 for a percent sign, in a password too")
		}
	}
	return user, password, hosts, path, nil
}

func list(schemes []Scheme) string {
	var names []string
	for _, s := range schemes {
		names = append(names, s.Name+"://")
	}
	last := len(names) - 1
	if last == 0 {
		return names[0]
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// parseQuery reads the parameters. It rejects names that no parameter has, because
// they may be a part of a password.
func (u *URL) parseQuery(text string) (err error) {
	if u.query, err = url.ParseQuery(text); err != nil {
		return errors.New("what follows the '?' cannot be read")
	}
	for name := range u.query {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return errors.New("a parameter's name has other characters than a-z and '_'")
		}
	}
	return nil
}

func (u *URL) parseHosts(list string) error {
	for host := range strings.SplitSeq(list, ",") {
		if host == "" {
			return errors.New("a host is missing")
		}
		if end := strings.LastIndexByte(host, ']'); strings.LastIndexByte(host, ':') <= end {
			host += ":" + u.port
		}
		_, port, err := net.SplitHostPort(host)
		number, notANumber := strconv.ParseUint(port, 10, 32)
		switch {
		case err != nil || notANumber != nil || len(port) > len("65535"): // may be a password
			return errors.New("a host is not followed by a port that is a number; a password is followed by '@'")
		case number > math.MaxUint16:
			return fmt.Errorf("%d is no port: ports end at 65535", number)
		}
		u.Hosts = append(u.Hosts, host)
	}
	return nil
}

// Location returns where the locks of the URL are. The family is the same for all schemes of a store. The path
// and the parameters (key=value) are those that distinguish locks.
func (u *URL) Location(family, path string, parameters ...string) driver.Location {
	var hosts []string
	for _, host := range u.Hosts {
		hosts = append(hosts, cmp.Or(strings.TrimSuffix(host, ":"+u.port), "localhost"))
	}
	query := ""
	if len(parameters) > 0 {
		query = "?" + strings.Join(parameters, "&")
	}
	shown := u.Scheme + "://" + strings.TrimSuffix(strings.Join(hosts, ",")+"/"+(&url.URL{Path: path}).EscapedPath(), "/")
	slices.Sort(hosts)
	same := strings.ToLower(strings.Join(slices.Compact(hosts), ","))
	return driver.Location{URL: shown + query, Identity: family + ":" + same + "/" + path + query}
}

// Take removes a parameter and returns its value.
func (u *URL) Take(name string) string {
	value := u.query.Get(name)
	u.query.Del(name)
	return value
}

// TakeOne is Take for a parameter whose value is one of words, or missing.
func (u *URL) TakeOne(name string, words ...string) (string, error) {
	value := u.Take(name)
	if value != "" && !slices.Contains(words, value) {
		return "", fmt.Errorf("%s is %q, not %s", name, value, strings.Join(words, " or "))
	}
	return value, nil
}

// Rest returns the parameters that were not taken.
func (u *URL) Rest() url.Values { return u.query }

// Done returns an error if parameters were not taken. The error lists the known
// parameters, not the given one, which may be a part of a password.
func (u *URL) Done(known string) error {
	if len(u.query) > 0 {
		return fmt.Errorf("unknown parameter; known are %s", known)
	}
	return nil
}

// TakeTLS takes the parameters tls, ca, cert and key, with files in PEM. It returns nil
// unless wanted or tls=true.
func (u *URL) TakeTLS(wanted bool) (*tls.Config, error) {
	ca, cert, key := u.Take("ca"), u.Take("cert"), u.Take("key")
	asked, err := u.TakeOne("tls", "true", "false")
	switch {
	case err != nil:
		return nil, err
	case wanted || asked == "true":
	case ca != "" || cert != "" || key != "":
		return nil, errors.New("ca, cert and key are for TLS: add tls=true")
	default:
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: there is no certificate in %s", ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
