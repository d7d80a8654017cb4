# A static binary on an empty base: nothing to update, nothing to exploit.
# VERSION is given by the build; without it the binary says "unknown".
FROM docker.io/library/golang:1.26 AS build
ARG VERSION=unknown
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
# No paths and no build IDs that differ between machines: equal sources give equal bytes.
# `make dockerfile` compares them with those of `make image`.
RUN GOFLAGS=-buildvcs=false make build BIN=/generic-dp VERSION="${VERSION}"

FROM scratch
COPY --from=build /generic-dp /generic-dp
# uid 0 without capabilities: the kubelet's sockets belong to root.
USER 0:0
ENTRYPOINT ["/generic-dp"]
CMD ["serve"]
