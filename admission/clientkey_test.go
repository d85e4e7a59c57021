package admission

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestClientKey(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:80":                "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80":   "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":           "fe80::/64",
		"[::ffff:192.0.2.1]:80":       "192.0.2.1",
		"[::1]:80":                    "::/64",
		"":                            "",
		"@":                           "@",
		"pipe":                        "pipe",
		"192.0.2.1":                   "192.0.2.1",
		"2001:db8::1":                 "2001:db8::1",
		"[2001:db8::1]":               "[2001:db8::1]",
		"host.example:80":             "host.example",
		strings.Repeat("1", 1_000_00): strings.Repeat("1", 1_000_00),
	} {
		require.Equal(t, want, clientKey(address))
	}
}

// FuzzClientKey checks that the addresses of a /64 network have one key, and those of two
// networks have two.
func FuzzClientKey(f *testing.F) {
	f.Add("[2001:db8:1:2:3:4:5:6]:80", uint64(7))
	f.Add("192.0.2.1:1", uint64(0))
	f.Add("[::ffff:1.2.3.4%x]:1", uint64(1))
	f.Fuzz(func(t *testing.T, address string, low uint64) {
		got := clientKey(address)
		ap, err := netip.ParseAddrPort(address)
		if err != nil || ap.Addr().Unmap().Is4() {
			return
		}
		b := ap.Addr().As16()
		for i := range 8 {
			b[8+i] = byte(low >> (8 * i))
		}
		neighbour := netip.AddrFrom16(b)
		if !neighbour.Is4In6() {
			require.Equal(t, got, clientKey(netip.AddrPortFrom(neighbour, 1).String()))
		}
		b[7] ^= 1
		if next := netip.AddrFrom16(b); !next.Is4In6() {
			require.NotEqual(t, got, clientKey(netip.AddrPortFrom(next, 1).String()))
		}
	})
}
