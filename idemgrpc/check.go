package idemgrpc

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/idem-go/idem"
)

// Check returns an error that matches [idem.ErrInvalidOption] if a listed method
// is not one of the server's, or streams. Call it when all services are
// registered and before Serve; a *grpc.Server is what it takes.
func (i *Interceptor) Check(server interface {
	GetServiceInfo() map[string]grpc.ServiceInfo
}) error {
	services := server.GetServiceInfo()
	var problems []error
	for name := range i.methods {
		service, method := split(name)
		info, ok := services[service]
		at := slices.IndexFunc(info.Methods, func(m grpc.MethodInfo) bool { return m.Name == method })
		switch {
		case !ok:
			problems = append(problems, invalidOption("%s: the server has no service %s", name, service))
		case at < 0:
			problems = append(problems, invalidOption("%s: the service has no such method", name))
		case info.Methods[at].IsClientStream, info.Methods[at].IsServerStream:
			problems = append(problems, streams(name))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(problems...)
}

// described returns what the descriptors that are linked into the program have
// against a method. A service without one is left to Check.
func described(name string) error {
	service, method := split(name)
	if service == "" || method == "" {
		return invalidOption("%q is not of the form /package.Service/Method", name)
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil //nolint:nilerr // not linked in: a name that the server may know
	}
	sd, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return invalidOption("%s: %s is not a service", name, service)
	}
	md := sd.Methods().ByName(protoreflect.Name(method))
	switch {
	case md == nil:
		return invalidOption("%s: the service has no such method", name)
	case md.IsStreamingClient(), md.IsStreamingServer():
		return streams(name)
	}
	return nil
}

func streams(name string) error {
	return invalidOption("%s streams: only unary methods can be run once per key", name)
}

// split takes a full method name apart. Both parts are empty if it is not one.
func split(name string) (service, method string) {
	rest, ok := strings.CutPrefix(name, "/")
	service, method, found := strings.Cut(rest, "/")
	if !ok || !found || strings.Contains(method, "/") {
		return "", ""
	}
	return service, method
}

// scope is the [idem.Key.Scope] of a method: its full name, or where that is too
// long the end of it behind its digest.
func scope(name string) string {
	if utf8.RuneCountInString(name) <= idem.MaxScopeLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	digest := hex.EncodeToString(sum[:16])
	tail := []rune(name)[utf8.RuneCountInString(name)-(idem.MaxScopeLength-len(digest)-1):]
	return digest + "~" + string(tail)
}
