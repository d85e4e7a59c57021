package admission

import (
	"net/netip"
	"strings"
)

// clientKey returns the key for a client's address: the IPv4 address, or the first 64
// bits of an IPv6 address, because one client can use all addresses of such a network.
// Other text, for example that of a Unix socket, is returned unchanged.
func clientKey(address string) string {
	if colon := strings.IndexByte(address, ':'); colon > 0 && strings.LastIndexByte(address, ':') == colon {
		return address[:colon] // IPv4 in the form of net/http
	}
	host, err := netip.ParseAddrPort(address)
	if err != nil {
		return address
	}
	ip := host.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
