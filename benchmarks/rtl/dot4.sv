// The exact sum of four products of E4M3 numbers and an FP16 number, rounded once to FP16: see dot4.toml.
module dot4(input logic [31:0] a, b, input logic [15:0] c, output logic [15:0] result);
  function automatic logic signed [63:0] sum_of(input logic [31:0] a, b, input logic [15:0] c);
    sum_of = numbers::units_of_fp16(c);
    for (int i = 0; i < 4; i++)  // products are integers in units of 2^-18
      sum_of += (numbers::integer_of_e4m3(a[8*i+:8]) * numbers::integer_of_e4m3(b[8*i+:8])) <<< 6;
  endfunction

  function automatic logic has_nan(input logic [31:0] x);
    has_nan = 0;
    for (int i = 0; i < 4; i++) has_nan |= x[8*i+:7] == 7'h7F;
  endfunction

  assign result = has_nan(a) || has_nan(b) || c[14:0] > 15'h7C00 ? 16'h7E00
                : c[14:0] == 15'h7C00 ? c
                : numbers::fp16_of_units(sum_of(a, b, c));
endmodule
