# A static binary on an empty base: nothing to update, nothing to exploit.
# VERSION is given by the build; without it the binary says "unknown".
FROM docker.io/library/golang:1.26 AS build
ARG VERSION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# The same flags as `make build`: no paths, no build IDs that differ between
# machines, so that equal sources give equal bytes. `make dockerfile` compares them.
RUN CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags grpcnotrace,nethttpomithttp2 \
      -gcflags=all=-l -gcflags=runtime= -gcflags=internal/...= -gcflags=google.golang.org/grpc/...= -gcflags=golang.org/x/net/...= \
      -ldflags "-s -w -buildid= -funcalign=8 -X main.version=${VERSION}" \
      -o /generic-dp ./cmd/generic-dp

FROM scratch
COPY --from=build /generic-dp /generic-dp
# uid 0 without capabilities: the kubelet's sockets belong to root.
USER 0:0
ENTRYPOINT ["/generic-dp"]
CMD ["serve"]
